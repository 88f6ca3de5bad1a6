"""What was called and what it cost, added up by day, agent, tool and group. Quotas and budgets
are `limits`.
"""
