"""What people decide about calls that need a person: the rules, decisions, reminders and expiry.
Holding a call and spending its approval is `execution`.
"""
