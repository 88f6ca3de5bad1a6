"""A client of MCP servers: both eras of the protocol, everything that is read bounded.

Knows one protocol and nothing of policy, catalog or pipeline (decision 14).
"""
