"""Brokers of tool services other than this installation's, configured by the operator.

Only the operator names one: no input of an organization makes us connect anywhere.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from config.env import BadSetting, env_text, file_text

SERVICE_NAME = re.compile(r"(?:[a-z0-9-]{1,63}/)?[^/\s]{1,200}")
_BROKER_URL = re.compile(r"[a-z][a-z0-9+]{0,30}://.{0,2000}")


@dataclass(frozen=True, slots=True)
class CeleryBroker:
    """A URL of kombu's, and its transport's options. Either may hold passwords."""

    url: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def broker_of(
    brokers: Mapping[str, CeleryBroker], organization: str, service: str
) -> CeleryBroker | None:
    """The more exact name counts. None where the service is at our own broker."""
    return brokers.get(f"{organization}/{service}") or brokers.get(service)


def env_brokers(name: str) -> dict[str, CeleryBroker]:
    """By `service` or `organization/service`. JSON, or the path of a file with JSON or YAML."""
    given = env_text(name).strip()
    if not given:
        return {}
    try:
        raw = given if given.startswith("{") else file_text(name, given)
        return read_brokers(yaml.safe_load(raw) if raw is not given else json.loads(raw))
    except OSError as error:
        raise BadSetting(f"{name} names a file that cannot be read: {error.strerror}.") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadSetting(f"{name} is not as it should be: {describe_flaw(error)}") from None


def read_brokers(raw: Any) -> dict[str, CeleryBroker]:
    """Raises ValueError, which repeats no address: there are passwords in them."""
    if not isinstance(raw, dict):
        raise ValueError("it must be an object of services and their brokers")
    return {name: _read_broker(name, one) for name, one in raw.items()}


def _read_broker(name: Any, raw: Any) -> CeleryBroker:
    if not isinstance(name, str) or not SERVICE_NAME.fullmatch(name):
        raise ValueError("a service is named as service or organization/service")
    said = {"url": raw} if isinstance(raw, str) else raw
    if not isinstance(said, dict) or set(said) - {"url", "options"}:
        raise ValueError(f"{name} must be a URL, or an object of url and options")
    url, options = said.get("url"), said.get("options", {})
    if not isinstance(url, str) or not _BROKER_URL.fullmatch(url) or not isinstance(options, dict):
        raise ValueError(f"{name} needs a url such as amqps://…, and options that are an object")
    return CeleryBroker(url, options)


def describe_flaw(error: Exception) -> str:
    """A parser of JSON or YAML may quote what it read."""
    return str(error) if type(error) is ValueError else "it cannot be read"
