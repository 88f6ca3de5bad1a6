"""Pages of chains (composite tools): editing, drawing, dry run, and the state of runs."""
