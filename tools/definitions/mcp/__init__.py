"""A lenient parser of messages from MCP servers: from a decoded message to a well-formed one, with
a repair for everything that was read as something else. Pure functions: no transport and no client
here."""
