"""Object permissions and who granted them: grant, revoke, list and narrow. Gates read them; nothing
here decides about a call.
"""
