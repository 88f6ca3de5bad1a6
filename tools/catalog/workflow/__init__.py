"""Workflow states, chains and the linter. Running a chain is in `tools.workflows`."""
