"""Logging in and out, a person's profile, second factors and single sign-on, and proving again
who one is. Agents have pages of their own.
"""
