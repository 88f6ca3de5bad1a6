"""Settings of the installation and of an organization: signing keys, sandbox, workspace, and the
style guide.
"""
