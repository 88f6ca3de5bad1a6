"""A client of MCP servers in all versions of the protocol, with limits on all that is read. It
knows the protocol and nothing of policy, catalog or pipeline (decision 14).
"""
