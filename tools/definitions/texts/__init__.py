"""Texts of definitions: names, invisible characters, templates, HTTP requests, and the formats of
tool descriptions for clients.
"""
