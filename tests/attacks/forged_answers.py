"""Answers that are not what they seem. All of it comes from the tool's own process."""

import os
import signal
import sys
import time
from typing import Any

from tests.attacks.attack import ALL, RESTRICTED, STANDARD, attack
from tests.attacks.evidence import (
    OURS,
    blamed_memory,
    got,
    had_control_of_the_terminal,
    hid_its_use,
    spoke_in_our_name,
    was_believed,
)
from tests.attacks.kit import Parameters, answer, forever

_DEEP = 100_000
# What a reader that means well takes: the last of two values, or half a character.
_LENIENT_PAYLOADS = {
    "not a number": b"RNaN",
    "infinity": b"R[Infinity]",
    "minus infinity": b"R-Infinity",
    "a number that is infinity when read": b"R1e999",
    "an integer of 301 digits": b"R" + b"9" * 301,
    "an integer of four thousand digits": b"R" + b"9" * 4000,
    "a negative enormous integer": b"R[-" + b"9" * 400 + b"]",
    "a key twice": b'R{"role":"user","role":"admin"}',
    "a key twice further in": b'R[{"a":{"b":1,"b":2}}]',
    "a key twice in two spellings": b'R{"a":1,"\\u0061":2}',
    "65 levels": b"R" + b"[" * 65 + b"]" * 65,
    "65 levels of both kinds": b"R" + b'[{"a":' * 33 + b"1" + b"}]" * 33,
    "a hundred thousand levels": b"R" + b"[" * _DEEP + b"]" * _DEEP,
    "a hundred thousand objects": b"R" + b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    "half a surrogate pair": b'R"\\ud800"',
    "the other half": b'R"\\udfff"',
    "half a pair as a key": b'R{"\\ud800":1}',
    "two halves in the wrong order": b'R"\\udc00\\ud800"',
    "NUL": b'R"a\\u0000b"',
    "NUL as a key": b'R{"\\u0000":1}',
    "a pickle": b"R\x80\x04K\x01.",
    "a pickle without a kind": b"\x80\x04K\x01.",
    "a pickle that runs code": b"Rcposix\ngetpid\n(tR.",
    "a mark of byte order": b"R\xef\xbb\xbf1",
    "UTF-16": b"R" + '"x"'.encode("utf-16"),
    "bytes that are no text": b'R"\xff\xfe"',
    "a text in Latin-1": b'R"\xfc"',
    "NUL in two bytes": b'R"\xc0\x80"',
    "half a surrogate pair in bytes": b'R"\xed\xa0\x80"',
    "a literal of Python": b"R{'a': None}",
    "a tuple of Python": b"R(1, 2)",
}
_MALFORMED_PAYLOADS = {
    "nothing": b"",
    "a result without a value": b"R",
    "a kind that there is not": b"X1",
    "half a value": b"R{",
    "two values": b"R1 2",
    "a value and more": b"R1}",
    "a raw NUL": b'R"\0"',
    "a raw line break in a text": b'R"a\nb"',
    "a comma too many": b"R[1,]",
    "a comment": b"R1//x",
    "a number with a leading zero": b"R01",
    "a hexadecimal number": b"R0x10",
    "a text without an end": b'R"' + b'\\"' * 400_000,
    "escapes without an end": b'R["a", "' + b"\\\\" * 400_000,
    "brackets that close what was not opened": b"R" + b"]" * _DEEP,
    "brackets that are open for ever": b"R" + b"[" * _DEEP,
    "an error without anything": b"E",
    "an error that is a number": b"E1",
    "an error without a code": b'E{"message":"x"}',
    "an error without a message": b'E{"code":"TIMEOUT"}',
    "an error with a code of many": b'E{"code":["TIMEOUT"],"message":"x"}',
    "an error with a code in small letters": b'E{"code":"timeout","message":"x"}',
    "an error with a line break in its code": b'E{"code":"TIMEOUT\\n","message":"x"}',
    "an error with an enormous code": b'E{"code":"' + b"X" * 5000 + b'","message":"x"}',
    "an error with a message of another type": b'E{"code":"ABC","message":{"x":1}}',
}


# The same code of sandboxd reads the answers of all levels.
_SOME = (STANDARD, RESTRICTED)


def answers_uncleanly(p: Parameters) -> object:
    answer(bytes.fromhex(p["payload"]))
    forever()


for _name, _payload in (_LENIENT_PAYLOADS | _MALFORMED_PAYLOADS).items():
    attack(
        levels=_SOME,
        seen=(was_believed,),
        ends=("INVALID_RESULT",),
        toothless="" if _name in _LENIENT_PAYLOADS else "any reader of JSON refuses it",
        variant=f"with {_name}",
        extra={"payload": _payload.hex()},
    )(answers_uncleanly)


def fails_in_our_name(p: Parameters) -> object:
    """By the way that is there for codes of the tool's own."""
    raise sys.modules["toolcrib"].ToolError(p["code"], "says the tool")


def forges_an_error_of_ours(p: Parameters) -> object:
    answer(b'E{"code":"%s","message":"says the tool"}' % p["code"].encode())
    forever()


for _code in sorted(OURS):
    for _body in (fails_in_our_name, forges_an_error_of_ours):
        attack(
            levels=_SOME,
            seen=(spoke_in_our_name,),
            ends=("TOOL_ERROR", "MEMORY_LIMIT"),
            variant=_code,
            extra={"code": _code},
        )(_body)


@attack(levels=ALL, seen=(spoke_in_our_name, was_believed))
def forges_an_outcome(p: Parameters) -> object:
    answer(b'E{"code":"SUCCESS","message":"x","outcome":"SUCCESS","error_code":null}')
    forever()


@attack(levels=ALL, seen=(got("late"),))
def answers_twice(p: Parameters) -> object:
    answer(b'R"early"', b'R"late"')
    forever()


@attack(levels=ALL, seen=(was_believed,), ends=("EXITED",))
def ends_in_the_middle_of_an_answer(p: Parameters) -> object:
    os.write(3, (12).to_bytes(4, "big") + b'R"half"')
    os._exit(0)


@attack(levels=ALL, seen=(was_believed,), ends=("EXITED",))
def ends_without_an_answer_but_with_a_good_status(p: Parameters) -> object:
    os._exit(0)


@attack(levels=ALL, seen=(was_believed,), ends=("EXITED",))
def ends_by_the_usual_exception(p: Parameters) -> object:
    sys.exit(0)


@attack(levels=ALL, seen=(spoke_in_our_name,), ends=("EXITED",))
def ends_with_the_status_of_a_timeout(p: Parameters) -> object:
    os._exit(124)


@attack(levels=ALL, seen=(spoke_in_our_name,), ends=("EXITED", "TOOL_ERROR"))
def ends_by_the_signal_of_the_processor_limit(p: Parameters) -> object:
    """A first process of a namespace does not even hear it from within."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGXCPU)
    os._exit(128 + signal.SIGXCPU)


@attack(levels=ALL, seen=(blamed_memory, was_believed), ends=("EXITED", "TOOL_ERROR", "LOST"))
def ends_as_if_the_kernel_had_killed_it(p: Parameters) -> object:
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)


@attack(levels=ALL, seen=(hid_its_use,), counted=True)
def claims_to_have_used_nothing(p: Parameters) -> object:
    while time.process_time() < 0.1:
        pass
    nothing = {"cpu_time_ms": 0, "peak_memory_bytes": 0, "wall_ms": 0, "network_requests": 0}
    return {"usage": nothing}


@attack(levels=ALL, seen=(got("owned"),), ends=("INVALID_RESULT",))
def returns_an_object_that_runs_when_it_is_read(p: Parameters) -> object:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return eval, ("'owned'",)

    return Bomb()


@attack(levels=ALL, seen=(got("owned"),), toothless="JSON is written from what is inside of it")
def returns_a_text_that_is_not_the_text_it_is(p: Parameters) -> object:
    class Two(str):
        def __str__(self) -> str:
            return "owned"

        __repr__ = __str__

        def __reduce__(self) -> tuple[Any, ...]:
            return str, ("owned",)

    return Two("plain")


@attack(levels=ALL, seen=(was_believed,), ends=("INVALID_RESULT",))
def returns_a_number_that_is_none(p: Parameters) -> object:
    return {"total": float("nan"), "more": [float("inf")]}


@attack(levels=ALL, seen=(was_believed,), ends=("INVALID_RESULT",))
def returns_an_integer_that_spells_itself_otherwise(p: Parameters) -> object:
    class Odd(int):
        def __repr__(self) -> str:
            return "NaN"

    return [Odd(1), 10**4000]


@attack(levels=ALL, seen=(was_believed,), ends=("INVALID_RESULT",))
def returns_what_contains_itself(p: Parameters) -> object:
    ring: list[object] = []
    ring.append(ring)
    return ring


@attack(levels=ALL, seen=(was_believed,), ends=("INVALID_RESULT",))
def returns_keys_that_become_the_same(p: Parameters) -> object:
    return {1: "user", "1": "admin"}


@attack(levels=ALL, seen=(was_believed,), ends=("INVALID_RESULT",))
def returns_half_a_character(p: Parameters) -> object:
    return ["\ud800", "\0"]


@attack(levels=ALL, seen=(got("owned"),), toothless="the control has no such code")
def exchanges_the_code_that_writes_its_answer(p: Parameters) -> object:
    """All of it lies in its own process: what it makes of that is an answer like any other."""
    for name, module in list(sys.modules.items()):
        if name.endswith("runner") and hasattr(module, "encode"):
            module.encode = lambda value: b"\x80\x04\x8c\x05owned."  # type: ignore[attr-defined]
    return "plain"


@attack(levels=ALL, seen=(had_control_of_the_terminal,))
def fails_with_an_error_that_is_no_text(p: Parameters) -> object:
    raise OSError("a\0b \ud800 \x1b[2J")
