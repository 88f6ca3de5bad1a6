"""Runs code tools of an organization, in Python or JavaScript: source from the version, inside the
sandbox."""

from sandbox.spec import CodeSource, SandboxResult
from tools.runners.base import ToolRun
from tools.runners.sandboxing import around_code, perform


def run(job: ToolRun) -> SandboxResult:
    implementation = job.definition.raw["implementation"]
    program = CodeSource(implementation["source"], implementation["entry_point"])
    return perform(job, program, around_code(job))
