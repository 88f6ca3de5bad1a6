"""RDF behind SPARQL 1.1: one protocol, nothing of policy or pipeline."""
