"""The tools that come with the product: behind the wall like any other, or in the worker, where
what they reach is the operator's own store."""

from collections.abc import Callable

from sandbox.spec import Preloaded, SandboxResult
from tools.builtin import manifest
from tools.runners import knowledge
from tools.runners.base import Run
from tools.runners.sandboxing import around_builtin, perform

HOSTED: dict[str, Callable[[Run], SandboxResult]] = {
    "execute_ckvs_query": knowledge.run_ckvs_query,
}


def run(job: Run) -> SandboxResult:
    name = job.definition.raw["implementation"]["entry_point"]
    if name in HOSTED:
        return HOSTED[name](job)
    builtin = manifest.ISOLATED[name]
    return perform(job, Preloaded(builtin.module), around_builtin(job, builtin))
