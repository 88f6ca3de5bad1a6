"""The gates that decide whether a call may be made, and explanations of their verdicts. What gates
count or reserve is in `limits`, and what they read of people in `accounts`.
"""
