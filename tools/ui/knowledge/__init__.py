"""The organization's knowledge graph: entities, what surrounds them, and its import."""
