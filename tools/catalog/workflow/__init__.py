"""States of workflows, chains and what the linter finds in them. Running a chain is
`tools.workflows`.
"""
