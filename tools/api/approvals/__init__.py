"""Held calls and the rules that hold them, over the API."""
