"""Administration of an organization's knowledge graph. SPARQL is in `tools.knowledge`."""
