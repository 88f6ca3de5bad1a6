"""The Merkle tree of RFC 6962: leaf and node hashes, roots from a frontier, proofs. Pure.

A frontier is the complete subtrees of a tree from left to right, the largest first: one for each
bit of the size that is set. It is all that appending needs.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

EMPTY = sha256(b"").digest()
Frontier = list[bytes]


def leaf_hash(leaf: bytes) -> bytes:
    return sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def frontier_root(frontier: Sequence[bytes]) -> bytes:
    """The root of a tree; that of an empty one where there is nothing."""
    if not frontier:
        return EMPTY
    root = frontier[-1]
    for left in reversed(frontier[:-1]):
        root = node_hash(left, root)
    return root


def extend(frontier: Frontier, size: int, leaves: Iterable[bytes],
           completed: Callable[[int, int, bytes], None] | None = None) -> int:  # fmt: skip
    """Append leaf hashes to the frontier of a tree of `size`; the new size.

    `completed` is called for every complete subtree: its level, its index there and its hash.
    """
    for leaf in leaves:
        level, index, made = 0, size, leaf
        while index & 1:
            made = node_hash(frontier.pop(), made)
            level, index = level + 1, index >> 1
            if completed is not None:
                completed(level, index, made)
        frontier.append(made)
        size += 1
    return size


def leaves_root(leaves: Iterable[bytes]) -> bytes:
    frontier: Frontier = []
    extend(frontier, 0, leaves)
    return frontier_root(frontier)


Subtree = Callable[[int, int], bytes]
"""The root of the leaves from the first index to before the second."""


def inclusion_proof(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """RFC 6962, 2.1.1: from the leaf's sibling up. Raises ValueError for an index beyond."""
    if not 0 <= index < size:
        raise ValueError("the tree does not hold that leaf")
    return _path(index, 0, size, subtree)


def _path(index: int, first: int, end: int, subtree: Subtree) -> list[bytes]:
    if end - first == 1:
        return []
    middle = first + _split(end - first)
    if index < middle:
        return [*_path(index, first, middle, subtree), subtree(middle, end)]
    return [*_path(index, middle, end, subtree), subtree(first, middle)]


def root_from_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes]) -> bytes:
    """The root a proof leads to (RFC 9162, 2.1.3.2). Raises ValueError for a wrong length."""
    if not 0 <= index < size:
        raise ValueError("the tree does not hold that leaf")
    last, found = size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise ValueError("the proof is too long")
        if index & 1 or index == last:
            found = node_hash(sibling, found)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        index, last = index >> 1, last >> 1
    if last:
        raise ValueError("the proof is too short")
    return found


def consistency_proof(old: int, new: int, subtree: Subtree) -> list[bytes]:
    """RFC 6962, 2.1.2: that a tree of `old` leaves is the beginning of one of `new`."""
    if not 0 < old <= new:
        raise ValueError("the older tree must hold something, and no more than the newer")
    return _consistency_path(old, 0, new, True, subtree)


def _consistency_path(old: int, first: int, end: int, whole: bool, subtree: Subtree) -> list[bytes]:
    size = end - first
    if old == size:
        return [] if whole else [subtree(first, end)]
    split = _split(size)
    middle = first + split
    if old <= split:
        return [*_consistency_path(old, first, middle, whole, subtree), subtree(middle, end)]
    return [*_consistency_path(old - split, middle, end, False, subtree), subtree(first, middle)]


def is_consistent(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Whether the proof leads to both roots (RFC 9162, 2.1.4.2)."""
    if old == new:
        return not proof and old_root == new_root
    if not 0 < old < new or not proof:
        return False
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    before = after = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            after = node_hash(after, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and before == old_root and after == new_root


def _split(size: int) -> int:
    """The largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1
