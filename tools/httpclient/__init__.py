"""HTTP clients for servers that the operator named, and for addresses that a tenant chose, which
are checked. Their users know the protocols.
"""
