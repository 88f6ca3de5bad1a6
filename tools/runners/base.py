"""What a runner is given and what it gives back."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings

from sandbox.client import SandboxClient
from sandbox.spec import SandboxResult
from tools.definitions.tool import ToolDefinition


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one tool version. `stop` ends it when it is set."""

    organization: str
    definition: ToolDefinition
    parameters: dict[str, Any]
    timeout_s: float
    stop: threading.Event

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters with the definition's defaults for those left out."""
        return {**self.definition.defaults, **self.parameters}


Runner = Callable[[Run], SandboxResult]


@lru_cache(maxsize=1)
def sandbox() -> SandboxClient:
    """This process's connections to sandboxd; kept, never made in a call."""
    return SandboxClient(settings.SANDBOX_SOCKET)
