"""Accounts of organizations, people, agents and service accounts, with their tokens and grants. The
`policy` package decides what a caller may use.
"""
