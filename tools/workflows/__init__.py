"""Calls that make calls of their own (batches, chains, programs), retries and workflow sessions.
Each call of these takes the same pipeline.
"""
