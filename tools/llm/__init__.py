"""A client of models behind an OpenAI-compatible endpoint: one protocol, nothing of policy or
pipeline."""
