"""How a person proves who they are: passwords, second factors, single sign-on, and the browsers
in which they are logged in. Bearer tokens are elsewhere.
"""
