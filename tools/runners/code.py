"""Runs code tools of an organization, in Python or JavaScript: source from the version, inside the
sandbox."""

from sandbox.spec import SandboxResult, Source
from tools.runners.base import Run
from tools.runners.sandboxing import around_code, perform


def run(job: Run) -> SandboxResult:
    implementation = job.definition.raw["implementation"]
    program = Source(implementation["source"], implementation["entry_point"])
    return perform(job, program, around_code(job))
