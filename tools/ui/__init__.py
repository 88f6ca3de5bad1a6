"""The web UI: views and forms, grouped by subject like `templates`, and code that several of them
share.
"""
