"""Descriptors of tools from anywhere, and the catalog as a document: import with its preview,
OpenAPI, export.
"""
