"""Pages of agents: list, grants, tokens, quotas and budgets, and the requests that the product's
own agents answer.
"""
