"""The tools that come with the product: behind the wall like any other, but for those that need
what must not go there."""

from collections.abc import Callable

from sandbox.spec import Preloaded, SandboxResult
from tools.builtin import manifest
from tools.runners import messages
from tools.runners.base import Run
from tools.runners.sandboxing import around_builtin, perform

# In the worker itself.
HOSTED: dict[str, Callable[[Run], SandboxResult]] = {"send_message": messages.run}


def run(job: Run) -> SandboxResult:
    entry_point = job.definition.raw["implementation"]["entry_point"]
    if hosted := HOSTED.get(entry_point):
        return hosted(job)
    builtin = manifest.ISOLATED[entry_point]
    return perform(job, Preloaded(builtin.module), around_builtin(job, builtin))
