"""The product's own agents: a model decides, and calls go through the execution pipeline with no
permission that the caller does not have (specification S1, 4.3)."""
