"""The capability graph: which tool's output fits which tool's input, by names of values and by
schemas."""
