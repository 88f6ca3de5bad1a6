"""The editor of tool definitions and content schemas, and test runs of drafts. Validation is in
`tools.catalog`.
"""
