"""Isolation backends: bubblewrap, OCI containers, or a degraded mode where neither is possible. The
limits of a run are the daemon's.
"""
