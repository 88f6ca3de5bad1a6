"""Texts of definitions: names, what cannot be seen in them, templates, HTTP requests, and how a
tool is described to a client.
"""
