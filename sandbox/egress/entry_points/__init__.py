"""The two entry points of a run to the egress broker: requests in frames, and an HTTP proxy with
tunnels.
"""
