"""The wire format between a worker and sandboxd: small JSON headers, and opaque bodies.

A request is {"type": "ping"}, {"type": "examine", "mounts": […]}, {"type": "profile", …} (which has
no answer) or {"type": "run", …}, followed by a body frame with program and parameters, which goes
to the slot as it came. The answer to a run is a result header and a body frame: the output as JSON
text, empty when there is none.

{"type": "server", "server": {…}, "ticket": …} asks for a lasting server. It is answered with
{"type": "started"} and a descriptor, the server's streams, or with {"type": "refused", …}. From
then on the connection belongs to the server, and {"type": "ended", …} is its last message.

A run may name the time by which it must be over, and the worker may move it with {"type": "alive"}
frames during the run. It is a time of the monotonic clock, which all processes of a machine share.
"""

import json
import math
from typing import Any

from sandbox.errors import SpecInvalid
from sandbox.inside.frames import ConnectionEnded, FrameReader, FrameTooLarge, send
from sandbox.spec import SandboxResult, SandboxSpec
from sandbox.strict_fields import Fields

__all__ = ["ConnectionEnded", "FrameReader", "FrameTooLarge", "send"]

FRAME_CAP = 64 * 1024 * 1024
ALIVE_CAP = 256
PROFILES_PER_CONNECTION = 64  # then both sides forget them all


def encode(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def decode(frame: bytes) -> Fields:
    try:
        return Fields(json.loads(frame))
    except (ValueError, RecursionError):
        raise SpecInvalid("the header is not JSON") from None


def profile_frame(spec: SandboxSpec) -> bytes:
    return encode({"type": "profile", "profile": spec.profile.to_wire()})


def run_frames(
    spec: SandboxSpec, ticket: str | None, until: float | None = None
) -> tuple[bytes, bytes]:
    """`ticket` names the egress broker's policy for this run; `until` as above."""
    header: dict[str, Any] = {
        "type": "run",
        "organization": spec.organization,
        "profile": spec.profile.digest,
        "limits": spec.limits.to_wire(),
        "ticket": ticket,
    }
    if until is not None:
        header["until"] = until
    body = {"program": spec.program.to_wire(), "parameters": spec.parameters}
    return encode(header), encode(body)


def alive_frame(until: float) -> bytes:
    return encode({"type": "alive", "until": until})


def read_alive(frame: Fields) -> float:
    if frame.text("type") != "alive":
        raise SpecInvalid("during a run a worker only says that it is alive")
    return frame.done(read_until(frame))


def read_until(frame: Fields) -> float:
    """For ever, where the frame says nothing of it."""
    if not frame.has("until"):
        return math.inf
    until = frame.number("until")
    if not math.isfinite(until):
        raise SpecInvalid("until is out of range")
    return until


def result_frames(result: SandboxResult, output: bytes) -> tuple[bytes, bytes]:
    """`output` is JSON text that `untrusted_json` has read; it is not written out a second time."""
    return encode(result.to_wire()), output
