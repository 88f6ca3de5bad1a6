"""The playground: call a tool from a form, as the user or as an agent. `executions` lists calls."""
