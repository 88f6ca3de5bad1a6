"""Server-sent events that say when a page should look again, in a process of its own. They say
that something changed, never what.
"""
