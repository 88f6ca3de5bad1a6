"""Calls over the API: made, read, followed and cancelled, with their outputs, batches, chains,
sessions and usage.
"""
