"""Tool definitions and all they are made of, pure: read, checked, compared, signed. Nothing here
reads a database, a file or the network.
"""
