"""The sealed log: Merkle tree, checkpoints, signatures, anchors, and the sealer that writes
them. What a record says and how it is found is elsewhere, and so is verification.
"""
