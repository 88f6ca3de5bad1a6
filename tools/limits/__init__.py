"""What gates count: rates, quotas, budgets, places and load. They are reserved, settled and
restricted here; a gate reads the answer.
"""
