"""Calls that make calls of their own: batches, chains, programs. Each of these is a call of the
same pipeline.
"""
