"""What all API endpoints share: authentication, errors, conditional and idempotent requests,
pagination, streams. No endpoint is here.
"""
