"""Pages of MCP servers and tool services: registration, connection, and import of tools."""
