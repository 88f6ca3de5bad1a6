"""Random bytes where an enemy's bytes arrive. Seeded: what fails once fails again."""

import json
import math
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sandbox import untrusted_json, wire
from sandbox.daemon.runs.sandbox_run import RunEnd, read_answer
from sandbox.errors import ErrorCode, SpecInvalid
from sandbox.inside.frames import FrameReader, FrameTooLarge, pack
from sandbox.spec import CodeSource, IsolationLevel, Limits, Profile, SandboxSpec
from tests.attacks.siege import Siege
from tests.conditions import LIMIT_S, until

_SEEDS = (1, 2, 3)
_CAP = 4096
_PIECES = (
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00",
    b"\0", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"NaN", b"-Infinity", b"null", b"true", b"1e999",
    b"-0", b"1e-400", b"9" * 400, b"0.1", b'"a"', b'"a":1', b'{"a":1,"a":2}', b"\n",
    b"\xef\xbb\xbf",
    b"[[[[[[[[", b"]]]]]]]]", b'{"":{"":', b"//", b"R", b"E", b'{"code":"TIMEOUT","message":"x"}',
)  # fmt: skip
_LEFT_OUT = object()
_HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 63, -(1 << 64), 10**400, 1e308, -0.0, "", "\0", "\ud800", "x" * 100_000,
    "../..", "/", "//etc", "/proc/1", "/etc/\0", "/\ud800", "None", "Restricted", [], {},
    [[]], [{}],
    [None], ["a", "b", "c"], {"a": 1}, [[[[[[[[[[]]]]]]]]]],
)  # fmt: skip


def text_of(luck: random.Random, pieces: int = 12) -> bytes:
    return b"".join(luck.choice(_PIECES) for _ in range(luck.randint(0, pieces)))


def value_of(luck: random.Random, depth: int = 4) -> Any:
    """A clean value, with what is rare in real life."""
    if depth and luck.random() < 0.6:
        if luck.random() < 0.5:
            return [value_of(luck, depth - 1) for _ in range(luck.randint(0, 3))]
        return {
            str(n) * luck.randint(0, 3): value_of(luck, depth - 1)
            for n in range(luck.randint(0, 3))
        }
    texts = ("", "ü", "\U0001f600", '"', "\\", "\\u0000", "[{", "}" * 9, "a" * 99, "\x7f\x1b")
    return luck.choice((None, True, 0, -(2**53), 2**53, 1.5, -1e300, luck.choice(texts)))


def damaged(luck: random.Random, raw: bytes) -> bytes:
    """Some bytes exchanged, left out, put in or doubled."""
    changed = bytearray(raw)
    for _ in range(luck.randint(1, 4)):
        at = luck.randint(0, len(changed))
        match luck.randint(0, 3):
            case 0:
                changed[at : at + 1] = bytes([luck.randint(0, 255)])
            case 1:
                del changed[at : at + luck.randint(1, 8)]
            case 2:
                changed[at:at] = luck.choice(_PIECES)
            case _:
                changed[at:at] = changed[max(0, at - 8) : at]
    return bytes(changed)


def is_clean(value: Any, depth: int = 0) -> bool:
    """The rules once more, written the slow way."""
    if isinstance(value, dict):
        return depth < untrusted_json.DEPTH and all(
            is_clean(key, depth + 1) and is_clean(one, depth + 1) for key, one in value.items()
        )
    if isinstance(value, list):
        return depth < untrusted_json.DEPTH and all(is_clean(one, depth + 1) for one in value)
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or abs(value) < 10**untrusted_json.MOST_DIGITS


def answers(luck: random.Random) -> Iterator[bytes]:
    for _ in range(1500):
        yield luck.choice((b"R", b"E", b"", b"\x80")) + text_of(luck)
        clean = json.dumps(value_of(luck), ensure_ascii=luck.random() < 0.5).encode()
        yield b"R" + clean
        yield b"R" + damaged(luck, clean)
        yield b"E" + damaged(luck, b'{"code":"NOT_FOUND","message":"nothing there"}')


@pytest.mark.parametrize("seed", _SEEDS)
def test_whatever_a_tool_answers_is_clean_or_refused(seed: int) -> None:
    for raw in answers(random.Random(seed)):
        end = read_answer(raw)
        assert isinstance(end, RunEnd)
        if end.code is None:
            assert raw == b"R" + end.output
            assert is_clean(json.loads(end.output)), raw
        elif end.code != ErrorCode.INVALID_RESULT:
            assert raw[:1] == b"E" and (end.code == "TOOL_ERROR" or end.code in raw.decode())


@pytest.mark.parametrize("seed", _SEEDS)
def test_what_is_clean_is_read_as_everybody_reads_it(seed: int) -> None:
    luck = random.Random(seed)
    for _ in range(1500):
        value = value_of(luck)
        raw = json.dumps(value, ensure_ascii=luck.random() < 0.5).encode()
        assert untrusted_json.parse(raw) == value


@pytest.mark.parametrize("seed", _SEEDS)
def test_frames_come_out_as_they_went_in_however_they_were_cut(seed: int) -> None:
    luck = random.Random(seed)
    for _ in range(60):
        sent = [luck.randbytes(luck.choice((0, 1, 3, 4, 5, 100, _CAP))) for _ in range(8)]
        assert list(received(luck, b"".join(pack(*sent)))) == sent


@pytest.mark.parametrize("seed", _SEEDS)
def test_random_bytes_never_make_a_reader_hold_more_than_its_cap(seed: int) -> None:
    luck = random.Random(seed)
    for _ in range(120):
        small = luck.randint(0, 8).to_bytes(4, "big") + luck.randbytes(luck.randint(0, 12))
        raw = b"".join(luck.choice((small, luck.randbytes(9), b"\0\0")) for _ in range(40))
        assert all(len(frame) <= _CAP for frame in received(luck, raw))


def received(luck: random.Random, raw: bytes) -> Iterator[bytes]:
    """The frames of a reader that gets the bytes in pieces; it ends at what is too large."""
    near, far = socket.socketpair()
    with near, far:
        reader = FrameReader(far, _CAP)
        while raw:
            size = luck.randint(1, 2 * _CAP)
            near.sendall(raw[:size])
            raw = raw[size:]
            assert reader.feed()
            try:
                while (frame := reader.next_whole()) is not None:
                    yield frame
            except FrameTooLarge:
                return
            assert len(reader._buffer) <= _CAP + 4 + 2 * _CAP


def good_request() -> list[bytes]:
    """A profile, the header of a run, and its body."""
    spec = SandboxSpec(
        "fuzz",
        Profile(IsolationLevel.STANDARD),
        Limits(wall_s=0.2),
        CodeSource("def main(p):\n    return 1"),
        {},
    )
    ticket = (None,) * (wire.run_frames.__code__.co_argcount - 1)
    return [wire.profile_frame(spec), *wire.run_frames(spec, *ticket)]


def requests(luck: random.Random, count: int) -> Iterator[list[bytes]]:
    """What a worker might send that has lost its mind: a conversation each."""
    for _ in range(count):
        frames = good_request()
        which = luck.randrange(len(frames))
        match luck.randint(0, 2):
            case 0:
                frames[which] = text_of(luck)
            case 1:
                frames[which] = damaged(luck, frames[which])
            case _:
                luck.shuffle(frames)
        yield frames


def poisoned(frame: bytes) -> Iterator[bytes]:
    """With each of its fields left out, and holding each of the hostile values in turn."""
    for path in paths_in(json.loads(frame)):
        for poison in (*_HOSTILE, _LEFT_OUT):
            changed = holder = json.loads(frame)
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = poison
            if poison is _LEFT_OUT:
                del holder[path[-1]]
            yield json.dumps(changed).encode()


def paths_in(value: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    yield ("a field that there is not",)
    for key, inner in value.items():
        yield (key,)
        if isinstance(inner, dict):
            yield from ((key, *path) for path in paths_in(inner))


DEEP = 200_000
WHOLE_CONVERSATIONS: dict[str, bytes] = {
    "nothing": b"",
    "half a length": b"\0\0",
    "a frame too large": b"\xff\xff\xff\xff" + b"x" * 100,
    "a frame that never comes": b"\0\0\x10\0" + b"x" * 100,
    "frames of nothing": b"\0\0\0\0" * 50,
    "a request of another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20,
    "brackets without end": b"".join(pack(b"[" * DEEP)),
    "brackets in a header": b"".join(pack(b'{"type":' + b"[" * DEEP + b"]" * DEEP + b"}")),
    "an integer of five thousand digits": b"".join(pack(b'{"type":' + b"9" * 5000 + b"}")),
    "a limit that is no number": b"".join(
        pack(b'{"type":"run","organization":"a","profile":"b","limits":{"wall_s":NaN}}', b"{}")
    ),
    "UTF-16": b"".join(pack('{"type":"ping"}'.encode("utf-16"))),
    "half a surrogate pair": b"".join(pack(b'{"type":"\\ud800"}')),
}


@pytest.mark.parametrize("name", WHOLE_CONVERSATIONS)
def test_a_malformed_conversation_does_not_crash_sandboxd(siege: Siege, name: str) -> None:
    before = len(crashes(siege))
    with caller(siege) as connection:
        connection.sendall(WHOLE_CONVERSATIONS[name])
        assert is_ended(connection)
    assert crashes(siege)[before:] == []
    assert siege.daemon.run("def main(p):\n    return 1").output == 1


@pytest.mark.part("sandbox")
@pytest.mark.parametrize("seed", _SEEDS)
def test_senseless_requests_break_no_thread_of_sandboxd(siege: Siege, seed: int) -> None:
    before = len(crashes(siege))
    for frames in requests(random.Random(seed), 400):
        assert is_heard_out(siege, *frames), frames
    assert crashes(siege)[before:] == []
    assert siege.daemon.run("def main(p):\n    return 1").output == 1


@pytest.mark.part("sandbox")
def test_no_value_of_any_field_of_a_run_breaks_a_thread_of_sandboxd(siege: Siege) -> None:
    before = len(crashes(siege))
    profile, header, body = good_request()
    requests = [(profile, changed, body) for changed in poisoned(header)]
    assert [one for one in requests if not is_heard_out(siege, *one)] == []
    assert crashes(siege)[before:] == []


@pytest.mark.part("sandbox")
def test_no_value_of_any_field_of_a_profile_breaks_a_thread_of_sandboxd(siege: Siege) -> None:
    """Where it makes a profile, that is run as well."""
    before = len(crashes(siege))
    requests = map(with_profile, (*poisoned(good_request()[0]), *odd_profiles()))
    assert [one[0][:300] for one in requests if not is_heard_out(siege, *one)] == []
    assert crashes(siege)[before:] == []
    assert siege.daemon.run("def main(p):\n    return 1").output == 1


def odd_profiles() -> Iterator[bytes]:
    """Texts that are valid, and cannot be what they are meant for."""
    for field, value in (
        ("libraries", ["/\ud800"]),
        ("libraries", ["/" + "x" * 5000]),
        ("preload", [["fuzz", "\ud800"]]),
        ("preload", [["fuzz", "\0"]]),
        ("preload", [["fuzz", "(" * 5000]]),
        ("mounts", [{"source": "/\ud800", "target": "/there", "writable": False, "make": False}]),
        ("mounts", [{"source": "/usr", "target": "/\ud800", "writable": False, "make": False}]),
        (
            "mounts",
            [{"source": "/" + "x" * 5000, "target": "/there", "writable": True, "make": False}],
        ),
        (
            "mounts",
            [{"source": "/usr", "target": "/there" * 500, "writable": False, "make": False}],
        ),
    ):
        frame = json.loads(good_request()[0])
        frame["profile"][field] = value
        yield json.dumps(frame).encode()


def with_profile(frame: bytes) -> list[bytes]:
    """A request that has another profile's frame, and asks for a run of that profile."""
    _, header, body = good_request()
    try:
        digest = Profile.from_wire(json.loads(frame)["profile"]).digest
    except (SpecInvalid, KeyError):
        digest = "none"
    return [frame, wire.encode(json.loads(header) | {"profile": digest}), body]


def is_heard_out(siege: Siege, *frames: bytes) -> bool:
    with caller(siege) as connection:
        wire.send(connection, *frames)
        return is_ended(connection)


def test_many_silent_callers_do_not_block_a_run(siege: Siege) -> None:
    silent = [caller(siege) for _ in range(200)]
    try:
        assert siege.daemon.run("def main(p):\n    return 1").output == 1
    finally:
        for one in silent:
            one.close()
    until(lambda: threads(siege) < 100)


def test_neither_thread_nor_descriptor_nor_crash_is_left_of_them(siege: Siege) -> None:
    until(lambda: threads(siege) < 100)
    assert siege.descriptors_settle()
    assert crashes(siege) == []


def caller(siege: Siege) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(siege.daemon.path)
    connection.settimeout(LIMIT_S)
    return connection


def is_ended(connection: socket.socket) -> bool:
    """Having heard that we say no more, sandboxd answers or not, and hangs up."""
    try:
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            continue
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def crashes(siege: Siege) -> list[str]:
    """All that sandboxd has said so far has been read when it has said something for us."""
    word = uuid4().hex
    with caller(siege) as connection:
        wire.send(connection, wire.encode({"type": word}))
        is_ended(connection)
    until(lambda: any(word in line for line in siege.daemon.log))
    crashed = [json.loads(line) for line in list(siege.daemon.log) if '"crash"' in line]
    return [f"{one['kind']} at {one['where'][-1]}" for one in crashed]


def threads(siege: Siege) -> int:
    return len(list(Path(f"/proc/{siege.daemon.process.pid}/task").iterdir()))
