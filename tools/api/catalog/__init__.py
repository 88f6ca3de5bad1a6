"""Tools over the API: definitions, versions, changes, import and export, schemas of contents,
signing keys, the capability graph.
"""
