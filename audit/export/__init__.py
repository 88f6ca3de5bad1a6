"""Evidence to take away, in files with a signed manifest. Who may ask for one is decided
elsewhere.
"""
