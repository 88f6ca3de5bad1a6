"""API of organizations, tiers, agents, grants and tokens. Requests to agents are in
`agent_requests`.
"""
