"""Pages of workflow states: state graph, workflow simulator, explain, and the impact preview of
changes."""
