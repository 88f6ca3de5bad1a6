"""The OpenAPI document of the API, with what drf-spectacular cannot derive from the views."""
