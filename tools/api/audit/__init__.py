"""API of the audit log: records, exports, erasure, proofs and checkpoints."""
