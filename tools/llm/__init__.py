"""Models behind an OpenAI-compatible endpoint: one protocol, nothing of policy or pipeline."""
