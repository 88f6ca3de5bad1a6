"""Calls that were made: their list, one call with its output, batches and sessions. Making a
call is `playground`.
"""
