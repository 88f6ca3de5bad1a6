"""A client of tool services on a queue (specification S2): one protocol, nothing of policy or
pipeline."""
