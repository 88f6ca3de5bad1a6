"""The other layers of isolation that a slot puts on itself: mounts, Landlock, capabilities,
limits, and the calls of the kernel that they need.
"""
