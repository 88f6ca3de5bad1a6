"""Runners execute tools: one module per tool type, one protocol. Whether a call may run is decided
before."""
