"""Audit evidence: a redacted, sealed record of each action. It does not depend on tools, has
neither pages nor API, and could be shipped alone.
"""
