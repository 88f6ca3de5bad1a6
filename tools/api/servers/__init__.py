"""MCP servers, tool services, and what the sandbox and its egress allow, over the API."""
