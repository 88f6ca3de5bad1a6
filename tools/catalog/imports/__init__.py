"""Import and export of the catalog: tool descriptors from other formats, the import preview,
OpenAPI.
"""
