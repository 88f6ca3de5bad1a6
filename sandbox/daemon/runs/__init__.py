"""Runs from their template to their result: templates, warm slots, what a run sees, and what it
leaves behind. Limits are `limits`.
"""
