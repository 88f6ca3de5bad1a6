"""The tools that come with the product, behind the wall like any other."""

from sandbox.spec import Preloaded, SandboxResult
from tools.builtin import manifest
from tools.runners.base import Run
from tools.runners.sandboxing import around_builtin, perform


def run(job: Run) -> SandboxResult:
    builtin = manifest.ISOLATED[job.definition.raw["implementation"]["entry_point"]]
    return perform(job, Preloaded(builtin.module), around_builtin(job, builtin))
