"""Pages of a user's own account: login and logout, profile, second factors, single sign-on and
reauthentication.
"""
