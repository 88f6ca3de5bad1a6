"""Versions of tools: signing, verification, drift from what was approved, and the keys and
encrypted values of an organization.
"""
