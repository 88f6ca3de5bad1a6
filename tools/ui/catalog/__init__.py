"""The catalog of tools: its list, a tool with its versions, and import and export. Writing a
definition is `editor`.
"""
