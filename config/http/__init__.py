"""HTTP handling around the views: request checks before a view, and answers without one. Settings,
URLs and views are elsewhere.
"""
