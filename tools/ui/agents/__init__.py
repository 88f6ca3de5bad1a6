"""Agents: their list, grants, tokens and bounds, and the requests that the product's own agents
answer.
"""
