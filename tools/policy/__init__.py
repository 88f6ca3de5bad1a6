"""The gates that decide whether a call may be made, and what explains their answers. What gates
count or hold is `limits`, and what they read of people is `accounts`.
"""
