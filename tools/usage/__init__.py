"""Usage rollups: calls and costs by day, agent, tool and group. Quotas and budgets are `limits`."""
