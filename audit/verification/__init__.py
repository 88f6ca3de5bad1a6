"""Verification of logs against what was sealed and published: in the database, in files, of one
record. Logs are written by `audit.log`; only the daily verification writes evidence here.
"""
