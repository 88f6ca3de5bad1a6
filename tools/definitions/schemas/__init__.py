"""JSON Schema and JSONPath: compiled, their cost measured before use, and compared. Nothing here
reads a database.
"""
