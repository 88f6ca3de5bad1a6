"""Chains: steps whose outputs are the next ones' parameters. The written form, and what it means.

Pure: nothing here knows a catalog, a database or an execution.
"""
