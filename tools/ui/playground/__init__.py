"""Calling a tool from a form, as oneself or as an agent. Calls that were made are `executions`."""
