"""Authorization of callers: what gates read of a caller, what a caller may list and see, and its
pinned versions. The gates are in `policy`, and what they count is in `limits`.
"""
