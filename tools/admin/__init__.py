"""The Django admin site. Staff see the rows of their own organization; changes go through the
actions that pages and the API call too, and no rule is decided here.
"""
