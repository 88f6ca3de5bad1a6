"""Evidence over the API: records, exports, erasure, proofs and checkpoints."""
