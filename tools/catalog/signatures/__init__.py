"""Versions of tools: signed, verified, compared with what was approved, and the keys and sealed
values of an organization.
"""
