"""Texts of definitions: names, invisible characters, templates, and the formats of tool
descriptions for clients. Values that are written as text are in `values`.
"""
