"""API of channels and messages."""
