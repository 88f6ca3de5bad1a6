"""API of MCP servers with their authorizations, tool services, sandbox profiles and egress
credentials. The tools that they provide are in `catalog`.
"""
