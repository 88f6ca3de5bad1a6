"""Shapes: rows and reports as the plain dicts of the API contract, to the letter. The API, pages
and commands render them; nothing here reads a request."""
