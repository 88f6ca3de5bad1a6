#!/usr/bin/env python3
"""Checks evidence of a Toolcrib log without Toolcrib. One file, standard library only.

    toolcrib_verify.py record x.tlog-proof x.line KEY        the record stands in the log
    toolcrib_verify.py growth old.note x.growth-proof KEY    nothing before was changed

KEY is the log's public key, name+id+base64; x.line the record's line as it is exported.
Exit code 0: it is so. 1: it is not. 2: the files or the key cannot be read.
"""

import base64
import hashlib
import sys
from pathlib import Path

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int, int, int]


class Untrue(Exception):
    pass


def add(one: Point, other: Point) -> Point:
    a, b = (one[1] - one[0]) * (other[1] - other[0]), (one[1] + one[0]) * (other[1] + other[0])
    c, d = 2 * one[3] * other[3] * D, 2 * one[2] * other[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number: int, point: Point) -> Point:
    made = times(number >> 1, add(point, point)) if number else (0, 1, 1, 0)
    return add(made, point) if number & 1 else made


def point_of(raw: bytes) -> Point:
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - square) % P or (x == 0 and raw[31] >> 7):
        raise Untrue("a signature or a key is not one at all")
    x = P - x if x & 1 != raw[31] >> 7 else x
    return x, y, 1, x * y % P


def signed(public: bytes, signature: bytes, text: bytes) -> bool:  # RFC 8032, 5.1.7
    scalar = int.from_bytes(signature[32:], "little")
    if scalar >= ORDER or len(signature) != 64:
        return False
    digest = hashlib.sha512(signature[:32] + public + text).digest()
    key = times(int.from_bytes(digest, "little") % ORDER, point_of(public))
    left = times(scalar, point_of((4 * pow(5, -1, P) % P).to_bytes(32, "little")))
    right = add(point_of(signature[:32]), key)
    return all((left[at] * right[2] - right[at] * left[2]) % P == 0 for at in (0, 1))


def checkpoint(note: str, key: str) -> tuple[int, bytes]:
    """Its size and root, once a good signature of the key is found below it."""
    name, key_id, encoded = key.split("+", 2)
    public = base64.b64decode(encoded, validate=True)
    expected = hashlib.sha256(name.encode() + b"\n" + public).hexdigest()[:8]
    if public[:1] != b"\x01" or len(public) != 33 or key_id != expected:
        raise ValueError("the key is not an Ed25519 key with its own id")
    text, _, below = note.partition("\n\n")
    origin, size, root = text.split("\n")[:3]
    for line in below.splitlines():
        _, signer, encoded = line.split(" ")
        raw = base64.b64decode(encoded, validate=True)
        own = origin == signer == name and raw[:4].hex() == key_id
        if own and signed(public[1:], raw[4:], (text + "\n").encode()):
            return int(size), base64.b64decode(root, validate=True)
    raise Untrue("no good signature by this key stands below the checkpoint")


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def climb(at: int, last: int, start: bytes, siblings: list[bytes]) -> tuple[bytes, bytes]:
    """The roots of the older and of the newer tree (RFC 9162, 2.1.3.2 and 2.1.4.2)."""
    older = newer = start
    for sibling in siblings:
        if at & 1 or at == last:
            older, newer = node(sibling, older), node(sibling, newer)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            newer = node(newer, sibling)
        at, last = at >> 1, last >> 1
    if last:
        raise Untrue("the proof is too short")
    return older, newer


def proof_of(text: str, header: str, word: str) -> tuple[int, list[bytes], str]:
    """Its number, its hashes, and the checkpoint's note below them."""
    above, _, note = text.partition("\n\n")
    first, second, *hashes = above.split("\n")
    if first != header or not second.startswith(word):
        raise ValueError(f"this is no file that begins with {header}")
    return int(second[len(word) :]), [base64.b64decode(one, validate=True) for one in hashes], note


def check_record(proof: str, line: bytes, key: str) -> str:
    index, hashes, note = proof_of(proof, "c2sp.org/tlog-proof@v1", "index ")
    size, root = checkpoint(note, key)
    if not 0 <= index < size:
        raise Untrue(f"the tree has {size} leaves, and none at {index}")
    leaf = hashlib.sha256(b"\x00" + line.rstrip(b"\r\n")).digest()
    if climb(index, size - 1, leaf, hashes)[1] != root:
        raise Untrue(f"the record is not what stands in the log at {index}")
    return f"The record stands in the log at {index}, in a tree of {size} records."


def check_growth(note: str, proof: bytes, key: str) -> str:
    old, before = checkpoint(note, key)
    claimed, hashes, newer = proof_of(proof.decode(), "toolcrib growth-proof@v1", "from ")
    new, after = checkpoint(newer, key)
    if claimed != old or not 0 < old <= new:
        raise Untrue(f"the proof is from {claimed} records to {new}, the checkpoint of {old}")
    path = hashes if old & (old - 1) and old < new else [before, *hashes]
    shift = (old ^ (old - 1)).bit_length() - 1 if old < new else new.bit_length()
    if climb(old - 1 >> shift, new - 1 >> shift, path[0], path[1:]) != (before, after):
        raise Untrue("the newer tree does not go on from the older one")
    return f"The log grew from {old} to {new} records, and nothing before was changed."


CHECKS = {"record": check_record, "growth": check_growth}


def main(words: list[str]) -> int:
    try:
        what, first, second, key = words
        print(CHECKS[what](Path(first).read_text("utf-8"), Path(second).read_bytes(), key))
    except Untrue as error:
        print(f"NOT PROVED: {error}.", file=sys.stderr)
        return 1
    except (OSError, ValueError, LookupError) as error:
        print(f"Cannot be read: {error}.\n{__doc__}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
