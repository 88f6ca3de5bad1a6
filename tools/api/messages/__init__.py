"""Channels and messages over the API."""
