"""Tool groups, states and why a caller may use a tool, over the API."""
