"""Whether a log is what was sealed and published of it: of the database, of files, of one record.
What is verified is written by `audit.log`, and nothing here writes evidence.
"""
