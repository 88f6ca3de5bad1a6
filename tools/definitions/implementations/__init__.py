"""The implementation of a tool, by its type: parsed from a definition, and for http tools built
into a request. Runners execute it.
"""
