"""Tool services as the catalog has them: written by people, or announced by themselves. The
queue's protocol is `tools.toolservices`.
"""
