"""The pages, grouped by subject as `templates` are, and what several of them share. Evidence,
approvals and accounts have rooms of their own in it.
"""
