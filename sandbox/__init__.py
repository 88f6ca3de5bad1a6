"""Run untrusted code in an OS sandbox, with limits and egress rules. It does not depend on tools or
Django, and could be shipped alone.
"""
