"""API of MCP servers, tool services, sandbox profiles and egress credentials."""
