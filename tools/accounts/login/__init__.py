"""Login of people: passwords, second factors, single sign-on, and browser sessions. Bearer tokens
are elsewhere.
"""
