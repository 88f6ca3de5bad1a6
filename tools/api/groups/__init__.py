"""API of tool groups, workflow states, and explanations of access."""
