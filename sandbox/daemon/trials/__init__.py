"""Attacks of sandboxd on its own sandbox, and what this machine was found to be able to do."""
