"""Clients of HTTP servers: of those that the operator named, and of addresses that a tenant
chose, which are checked. What is asked of them is the business of others.
"""
