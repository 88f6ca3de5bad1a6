"""Organizations, agents, grants, tokens and tiers over the API."""
