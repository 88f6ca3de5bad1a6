"""Approvals of held calls by people: rules, decisions, reminders and expiry. Holding a call and
spending its approval is in `execution`.
"""
