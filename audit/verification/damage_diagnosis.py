"""Diagnose damaged leaves: find out what was done to them, by macs that fit other positions.

An attacker who writes to the database can move rows, and can forge neither the mac of a record nor
that of a position. So a leaf's mac shows its original position, regardless of its row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice, product
from uuid import UUID

from audit.verification.chunks import SuspectLeaf, contradicts_id, mac_function
from audit.verification.log_source import (
    LogSource,
    UnsealedRecord,
    decode_micros,
    format_time,
    hashed_leaf,
    in_ranges,
)
from audit.verification.verification_report import FindingKind, VerificationFinding

_MOST_COMPARED = 200  # leaves whose macs are tried at each other's places
DamageItem = tuple[FindingKind, int, str]


@dataclass(frozen=True, slots=True)
class DamageScene:
    """All that is known of a damaged part. `end`: one past the last sound leaf; `signed`: the size
    of the largest tree that was signed with the key."""

    source: LogSource
    suspects: list[SuspectLeaf]
    gaps: list[tuple[int, int]]
    exported: list[tuple[int, int]]
    strays: list[UnsealedRecord]
    place_key: bytes | None
    end: int
    signed: int


@dataclass(frozen=True, slots=True)
class DamageReport:
    """`reach`: one past the last place something was sealed at. Up to `broken_from` the leaves'
    hashes are those that were sealed, as far as they alone can show."""

    findings: list[VerificationFinding]
    reach: int
    broken_from: int | None
    explained: frozenset[bytes]


def diagnose(scene: DamageScene) -> DamageReport:
    fits = _PositionMac(scene.place_key)
    placed = [one for one in scene.suspects if fits(one.row.number, one.row.hash, one.row.mac)]
    there = {one.row.number for one in placed}
    misplaced = [one for one in scene.suspects if one.row.number not in there]
    origins = _find_origins(scene, misplaced, fits)
    sound = [scene.end, *(one.row.number + 1 for one in placed), *(o + 1 for o in origins.values())]
    reach = max(sound)
    changed = [one.row.number for one in misplaced if one.row.number < scene.signed]
    reach = max([reach, *(index + 1 for index in changed)])
    explained: set[bytes] = set()
    gaps = [gap for gap in scene.gaps if gap[0] < reach]
    findings = [
        *_diagnose_records(scene, placed, explained),
        *_diagnose_leaves(scene, misplaced, origins, reach, fits),
        *(
            (FindingKind.MISSING, index, "the leaf was taken out")
            for index in _missing_positions(gaps, origins, reach)
        ),
    ]
    broken = [first for first, _ in gaps] + [one.row.number for one in misplaced]
    if scene.place_key is None:  # only a root shows which of the two was changed, record or leaf
        broken += [one.row.number for one in placed if one.hash is not None]
    if origins and not any(
        kind in (FindingKind.INSERTED, FindingKind.MISSING) for kind, _, _ in findings
    ):
        names = ", ".join(str(index) for index in sorted(origins)[:8])
        first = min([*origins, *origins.values()])
        findings.append((FindingKind.REORDERED, first, f"leaves stand elsewhere: {names}"))
    return DamageReport(
        merge_adjacent(findings), reach, min(broken, default=None), frozenset(explained)
    )


class _PositionMac:
    """Whether a place's mac was made for that leaf at that place; without the key, it always is."""

    def __init__(self, key: bytes | None) -> None:
        self.mac = mac_function(key) if key is not None else None

    def __call__(self, index: int, leaf_hash: bytes, mac: bytes) -> bool:
        return self.mac is None or (index >= 0 and self.mac(index.to_bytes(8) + leaf_hash) == mac)


def _find_origins(
    scene: DamageScene, misplaced: list[SuspectLeaf], fits: _PositionMac
) -> dict[int, int]:
    """Leaves that were moved: current position → original position."""
    origins: dict[int, int] = {}
    shift = 0
    for one in misplaced:
        now = one.row.number
        for then in (now - shift, now - 1, now + 1):
            if then != now and fits(then, one.row.hash, one.row.mac):
                origins[now], shift = then, now - then
                break
    return origins | _find_far_origins(scene, misplaced, origins, fits)


def _find_far_origins(
    scene: DamageScene, misplaced: list[SuspectLeaf], origins: dict[int, int], fits: _PositionMac
) -> dict[int, int]:
    """Of those that did not move with their neighbours, with their macs or without."""
    claimed = set(origins.values())
    unknown = [one for one in misplaced if one.row.number not in origins][:_MOST_COMPARED]
    left = chain.from_iterable(range(first, end) for first, end in scene.gaps)
    places = dict.fromkeys(islice(left, _MOST_COMPARED), b"")
    nowhere = [one for one in misplaced if one.row.number not in claimed]
    places |= {one.row.number: one.row.mac for one in nowhere[:_MOST_COMPARED]}
    found = {}
    for one, (then, mac) in product(unknown, places.items()):
        macs = (one.row.mac, mac)
        if then != one.row.number and any(fits(then, one.row.hash, made) for made in macs):
            found[one.row.number] = then
    return found


def _diagnose_leaves(
    scene: DamageScene,
    misplaced: list[SuspectLeaf],
    origins: dict[int, int],
    reach: int,
    fits: _PositionMac,
) -> Iterator[DamageItem]:
    """A leaf at a position that another was sealed at was put there; one that was sealed at its
    position and differs was changed; a position without a leaf is missing."""
    claimed = set(origins.values())
    for one in misplaced:
        index = one.row.number
        if index in origins:
            continue
        if one.hash is not None and fits(index, one.hash, one.row.mac):
            yield FindingKind.MUTATED, index, "its leaf's hash was changed, its record was not"
        elif index in claimed or index >= max(reach, scene.signed):
            yield FindingKind.INSERTED, index, "a leaf that nobody sealed was put there"
        elif one.hash is None and not in_ranges(index, scene.exported):
            yield FindingKind.MISSING, index, "the record is gone, and its leaf was changed"
        else:
            yield FindingKind.MUTATED, index, "what stands there is not what was sealed"


def _missing_positions(
    gaps: list[tuple[int, int]], origins: dict[int, int], reach: int
) -> list[int]:
    """Positions without a leaf: where a leaf moved away, or in a gap of which no leaf is found
    elsewhere, its first."""
    claimed = set(origins.values())
    left = [index for index in origins if index not in claimed and index < reach]
    for first, end in gaps:
        found = next((index for index in range(first, end) if index not in claimed), None)
        if found is not None:
            left.append(found)
    return sorted(left)


def _diagnose_records(
    scene: DamageScene, placed: list[SuspectLeaf], explained: set[bytes]
) -> Iterator[DamageItem]:
    hashes = {one.row.hash for one in placed}
    swapped = [one for one in placed if one.hash != one.row.hash and one.hash in hashes]
    if swapped:
        names = ", ".join(str(one.row.number) for one in swapped[:8])
        yield (
            FindingKind.REORDERED,
            swapped[0].row.number,
            f"leaves point at each other's records: {names}",
        )
    for one in placed:
        if one in swapped:
            continue
        findings = (
            _diagnose_missing_record(scene, one, explained)
            if one.hash is None
            else _diagnose_changed_record(one)
        )
        if findings is not None:
            yield findings[0], one.row.number, findings[1]


def _diagnose_missing_record(
    scene: DamageScene, one: SuspectLeaf, explained: set[bytes]
) -> tuple[FindingKind, str] | None:
    stray = _find_renamed_record(scene, one)
    if stray is not None:
        explained.add(stray.record_id)
        found = UUID(bytes=stray.record_id)
        return (
            FindingKind.MUTATED,
            f"its record or its leaf was given another id: the record is {found}",
        )
    if in_ranges(one.row.number, scene.exported):
        return None
    return FindingKind.MISSING, f"the record {UUID(bytes=one.row.record_id)} is gone"


def _find_renamed_record(scene: DamageScene, one: SuspectLeaf) -> UnsealedRecord | None:
    """The record that was sealed there, where it only has another id now."""
    wanted = str(UUID(bytes=one.row.record_id)).encode()
    for stray in scene.strays:
        body = scene.source.exact_body(stray.record_id)
        own = str(UUID(bytes=stray.record_id)).encode()
        # What comes after an id holds no quotation mark that is not escaped.
        before, mark, after = body.rpartition(b'"id":"' + own)
        renamed = before + mark.replace(own, wanted) + after
        for line in (body, renamed):
            leaf = hashed_leaf(line, stray.record_mac, decode_micros(stray.at))
            if sha256(leaf).digest() == one.row.hash:
                return stray
    return None


def _diagnose_changed_record(one: SuspectLeaf) -> tuple[FindingKind, str]:
    row = one.row
    at = decode_micros(row.at or b"")
    if one.hash == row.hash and not one.genuine:
        return FindingKind.INSERTED, "the record was sealed, and Toolcrib did not write it"
    # What a mac vouches for is all but the time.
    if one.vouched or (one.genuine and contradicts_id(row.record_id, at)):
        return FindingKind.BACKDATED, f"its time, {format_time(at)}, is not when it was written"
    return FindingKind.MUTATED, f"the record {UUID(bytes=row.record_id)} is not what was sealed"


def merge_adjacent(findings: Iterable[DamageItem]) -> list[VerificationFinding]:
    """One finding for adjacent leaves with the same damage."""
    found: list[VerificationFinding] = []
    last: dict[FindingKind, int] = {}
    runs: dict[FindingKind, int] = {}
    for kind, index, says in sorted(findings, key=lambda one: one[1]):
        if last.get(kind) == index - 1:
            first = found[runs[kind]].index
            found[runs[kind]] = VerificationFinding(kind, first, f"{first} to {index}: {says}")
        else:
            runs[kind] = len(found)
            found.append(VerificationFinding(kind, index, says))
        last[kind] = index
    return found
