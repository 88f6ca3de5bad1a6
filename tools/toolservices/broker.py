"""Where a tool service is, when it is not at this installation's own broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Broker:
    """A URL of kombu's, and its transport's options. Either may hold passwords."""

    url: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def broker_of(brokers: Mapping[str, Broker], organization: str, service: str) -> Broker | None:
    """The more exact name counts. None where the service is at our own broker."""
    return brokers.get(f"{organization}/{service}") or brokers.get(service)
