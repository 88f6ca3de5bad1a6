"""MCP servers and tool services: registered, connected, and imported from."""
