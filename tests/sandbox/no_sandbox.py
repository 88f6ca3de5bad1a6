"""The doctor's runs without a sandbox: python -m tests.sandbox.no_sandbox, the job on stdin.

What the attacks get here shows that they bite.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sandbox.errors import ErrorCode
from sandbox.inside import selfcheck
from sandbox.spec import Profile, RunOutcome, SandboxResult

ROOT = Path(__file__).resolve().parents[2]
ASSAULT_S, EXHAUSTION_S = 20, 0.3


def run(profile: Profile, body: dict[str, Any], place: Path) -> tuple[SandboxResult, bytes]:
    """As sandboxd's run, with a little time and no other limit. `place` is its directory."""
    parameters = body["parameters"]
    if "bait" in parameters:
        parameters["bait"]["shared"] = profile.mounts[0].source
    command = [sys.executable, "-m", "tests.sandbox.no_sandbox", str(place)]
    environment = {"PYTHONPATH": str(ROOT), "LEFT_BY_THE_HOST": "yes"}
    try:
        subprocess.run(
            command,
            input=json.dumps(body).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=ASSAULT_S if "bait" in parameters else EXHAUSTION_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return SandboxResult(RunOutcome.TIMEOUT, error_code=ErrorCode.TIMEOUT), b""
    return SandboxResult(RunOutcome.SUCCESS), (place / "answer").read_bytes()


def main(place: str) -> None:
    """The answer is a file: a process that is left behind would keep a pipe open."""
    body = json.load(sys.stdin)
    os.chdir(place)
    answer = getattr(selfcheck, body["program"]["entry_point"])(body["parameters"])
    Path("answer").write_text(json.dumps(answer), encoding="utf-8")
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
