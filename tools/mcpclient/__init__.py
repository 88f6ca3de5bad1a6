"""The client of MCP servers: one protocol, nothing of policy or pipeline."""
