"""API of the catalog: tools with their versions and upstream changes, groups, workflow states,
explanations, imports, content schemas and signing keys. Calls of tools are in `executions`.
"""
