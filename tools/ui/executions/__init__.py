"""Pages of executions: list, one call with its output, batches and sessions. `playground` makes
calls.
"""
