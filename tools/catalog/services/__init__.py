"""Tool services in the catalog: created by people, or self-announced. The queue protocol is in
`tools.toolservices`.
"""
