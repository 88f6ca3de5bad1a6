"""The tree over all chunks: its roots at the sizes that were signed, and its stored nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from audit.log import merkle
from audit.log.merkle import Frontier
from audit.verification.chunks import CHUNK, CHUNK_LEVEL, Chunk, SuspectLeaf
from audit.verification.verification_report import FindingKind, VerificationFinding

Nodes = dict[tuple[int, int], bytes]
_STORED_LEVEL_STEP = 8  # a node is stored for every level that is a multiple of it


@dataclass(slots=True)
class LogTree:
    """What the chunks make together. `on_size` is called with the edge at each requested size; it
    ends at the first gap."""

    first: int
    frontier: Frontier
    on_size: Callable[[int, Frontier], None]
    nodes: Nodes = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    suspects: list[SuspectLeaf] = field(default_factory=list)
    odd: list[tuple[int, int]] = field(default_factory=list)
    sound: int = 0

    def add(self, chunk: Chunk) -> None:
        whole = not self.gaps
        self.gaps += chunk.gaps
        self.suspects += chunk.suspects
        self.odd += chunk.odd
        self.sound = max(self.sound, chunk.sound)
        if not whole:
            return
        for mark, own in chunk.frontiers.items():
            self.on_size(mark, [*self.frontier, *own])
        self.nodes |= chunk.nodes
        made = chunk.nodes.get((CHUNK_LEVEL, chunk.first >> CHUNK_LEVEL))
        if made is not None:
            merkle.extend(self.frontier, chunk.first >> CHUNK_LEVEL, [made], self._store_node)
            self.on_size(chunk.first + CHUNK, self.frontier)

    def _store_node(self, level: int, index: int, made: bytes) -> None:
        if level % _STORED_LEVEL_STEP == 0:
            self.nodes[level + CHUNK_LEVEL, index] = made


def begin_tree(first: int, stored: Nodes, on_size: Callable[[int, Frontier], None]) -> LogTree:
    """The tree of what comes before `first`, a multiple of `CHUNK`, as its nodes say.

    Every root that is signed later shows whether they are right. Raises LookupError where one
    is missing.
    """
    frontier: Frontier = []
    for number in range(first >> CHUNK_LEVEL):
        merkle.extend(frontier, number, [stored[CHUNK_LEVEL, number]])
    on_size(first, frontier)
    return LogTree(first, frontier, on_size)


def differing_nodes(tree: LogTree, stored: Nodes) -> list[VerificationFinding]:
    """Stored nodes that are not those of the leaves."""
    found = []
    for key in sorted(stored.keys() | tree.nodes.keys()):
        (level, index), made = key, tree.nodes.get(key)
        first = index << level
        if first < tree.first or made == stored.get(key):
            continue
        if made is None:
            found.append(
                VerificationFinding(
                    FindingKind.INSERTED, first, f"{_node_name(key)} belongs to nothing"
                )
            )
        elif key not in stored:
            found.append(
                VerificationFinding(FindingKind.MISSING, first, f"{_node_name(key)} is gone")
            )
        else:
            found.append(
                VerificationFinding(
                    FindingKind.MUTATED, first, f"{_node_name(key)} is not that of its leaves"
                )
            )
    return found


def _node_name(key: tuple[int, int]) -> str:
    return f"the tree's node {key[1]} at level {key[0]}"
