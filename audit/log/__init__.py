"""The sealed log: Merkle tree, checkpoints, signatures, anchors, and the sealer that writes
them. The content of records, search and verification are elsewhere.
"""
