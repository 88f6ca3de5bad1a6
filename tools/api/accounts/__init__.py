"""API of organizations, agents, grants, tokens and tiers."""
