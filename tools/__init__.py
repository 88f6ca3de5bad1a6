"""The Toolcrib product: the tool catalog, access policy, and the execution of tool calls."""
