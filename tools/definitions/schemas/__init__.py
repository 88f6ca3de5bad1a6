"""JSON Schema and paths in JSON: compiled, measured before use, and compared. Nothing here reads
a database.
"""
