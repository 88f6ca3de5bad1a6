"""Runs from their template to their result: templates, warm slots, mounts, and cleanup. Limits are
`limits`.
"""
