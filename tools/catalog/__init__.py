"""The tool catalog of an organization, in memory by revision and in rows: register, change,
version, search. The `policy` package decides what a caller may do with it.
"""
