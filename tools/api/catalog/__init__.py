"""API of tools: definitions, versions, changes, import and export, content schemas, signing keys,
the capability graph.
"""
