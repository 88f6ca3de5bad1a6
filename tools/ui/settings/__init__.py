"""Pages of settings: installation, organization, signing keys, sandbox, workspace files, and the
style guide.
"""
