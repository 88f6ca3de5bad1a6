"""What every endpoint of the API stands on: authentication, errors, conditional and idempotent
requests, pages, streams. No endpoint stands here.
"""
