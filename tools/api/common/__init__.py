"""What all API endpoints share: authentication, errors, content types, serializer fields,
pagination, conditional and idempotent requests, event streams. No endpoint is here.
"""
