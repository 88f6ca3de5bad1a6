"""Writing a tool's definition and the schemas of contents, and trying a draft. What is saved is
decided in `tools.catalog`.
"""
