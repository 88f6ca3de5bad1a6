"""Knowledge graphs: RDF over SPARQL 1.1. A protocol client; nothing of policy or pipeline."""
