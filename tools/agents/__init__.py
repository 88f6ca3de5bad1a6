"""Agents of the product's own: they think with a model and act through the road, and hold no power
that their caller does not have (specification S1, 4.3)."""
