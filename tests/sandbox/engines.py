"""Monty and JavaScript without their walls: what the tool's side alone makes of a job."""

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from sandbox.backends import deno, monty_backend
from sandbox.inside import deno_run as inside
from sandbox.inside import frames
from sandbox.spec import MIB, Limits
from tests.sandbox.conftest import ROOT

# A slot of Monty without its walls; what it was given before its job counts as nothing.
SERVE = """
import socket, sys
from sandbox.inside import monty_run
monty_run.serve_one(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], 1 << 30)
"""


@dataclass(frozen=True)
class Said:
    """`answer` is the frame: kind and JSON; then what the tool printed."""

    answer: bytes
    out: str
    err: str

    @property
    def result(self) -> Any:
        assert self.answer[:1] == b"R", (self.answer, self.err)
        return json.loads(self.answer[1:])

    @property
    def error(self) -> tuple[str, str]:
        assert self.answer[:1] == b"E", (self.answer, self.err)
        said = json.loads(self.answer[1:])
        return said["code"], said["message"]


def in_monty(source: str, parameters: Any = None, entry_point: str = "main", **limits: Any) -> Said:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", SERVE, str(theirs.fileno()), monty_backend.program()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], **pipes)
    wanted = Limits(**limits).to_wire() | {"processes": 1 << 16, "file_bytes": MIB}
    return answer(process, ours, theirs, source, parameters, entry_point, json.dumps(wanted))


def in_deno(source: str, parameters: Any = None, entry_point: str = "main") -> Said:
    """What the tool's side alone makes of a job: Deno as a slot becomes it, without the slot."""
    program = inside.Runtime(deno.runtime(), deno.SCRIPT, new_code=True)
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        inside.command(program, 256 * MIB),
        stdin=theirs.fileno(),
        stdout=theirs.fileno(),
        stderr=subprocess.PIPE,
        env=inside.ENVIRONMENT,
        cwd="/",
        text=True,
    )
    return answer(process, ours, theirs, source, parameters, entry_point)


def answer(
    process: subprocess.Popen[str], ours: socket.socket, theirs: socket.socket,
    source: str, parameters: Any, entry_point: str, *before: str,
) -> Said:  # fmt: skip
    with ours:
        theirs.close()
        job = {"program": {"source": source, "entry_point": entry_point}, "parameters": parameters}
        frames.send(ours, *(one.encode() for one in before), json.dumps(job).encode())
        try:
            said = frames.FrameReader(ours, 10 * MIB).read()
        except frames.ConnectionEnded:
            said = b""
    out, err = process.communicate(timeout=20)
    return Said(said, out or "", err)
