"""Runs of untrusted code in an OS sandbox, with what they may use and reach. It knows nothing of
tools or Django, and could be shipped alone.
"""
