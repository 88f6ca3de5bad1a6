"""Chains: workflows of steps whose outputs are parameters of later steps. The document format and
its semantics; nothing here knows a catalog, a database or an execution.
"""
