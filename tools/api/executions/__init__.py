"""API of executions: create, read, follow and cancel calls, with their outputs, batches, chains,
sessions and usage. Definitions of tools are in `catalog`.
"""
