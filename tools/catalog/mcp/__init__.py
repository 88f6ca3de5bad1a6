"""Upstream MCP servers: registration, connection, tool lists, import, and health. The protocol is
in `tools.mcpclient`.
"""
