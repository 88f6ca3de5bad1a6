"""An organization's graph as administrators work with it. SPARQL is `tools.knowledge`."""
