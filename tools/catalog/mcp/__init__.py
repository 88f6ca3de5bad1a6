"""MCP servers upstream: registered, connected, listed, imported from, and how they are. The
protocol is `tools.mcpclient`.
"""
