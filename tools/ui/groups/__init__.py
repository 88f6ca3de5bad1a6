"""Pages of tool groups: tree, members, opening windows, and the agents that hold grants."""
