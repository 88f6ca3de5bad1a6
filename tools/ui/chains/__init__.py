"""Chains as they are written, drawn and rehearsed, and how a run of one stands."""
