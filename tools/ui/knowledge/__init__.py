"""Pages of the organization's knowledge graph: search, entities, import and export."""
