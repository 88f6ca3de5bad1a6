"""The gates that decide whether a call may be made: pure functions from a question to a verdict, in
one list. What they count or reserve is in `limits`, what they read of a caller in `authorization`.
"""
