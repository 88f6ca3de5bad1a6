"""The limits that gates enforce: rates, quotas, budgets, concurrency and load. They are reserved,
settled and restricted here; a gate reads the result.
"""
