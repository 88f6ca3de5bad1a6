"""Rows made the way the product makes them: through its actions."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password
from django.contrib.auth.models import Permission
from django.db import transaction
from django.db.models import DateTimeField, Value
from django.db.models.functions import Least
from django.utils import timezone

from audit.actions import Actor
from config.external_servers import StdioServer, read_stdio_servers
from tests import organizations
from tests.api import Api
from tools.accounts import account_actions
from tools.accounts.token_authentication import caller_of_token
from tools.builtin.manifest import DEFINITIONS
from tools.builtin.workspaces import workspace_path
from tools.catalog.actions import register_tool
from tools.catalog.builtins import install_builtins
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE
from tools.definitions.results import Status
from tools.execution.admit import admit
from tools.execution.call import Call
from tools.models import Agent, Execution, Organization, Tool, User

PYTHON = "def main(parameters):\n    return {'echo': parameters}\n"
_CORE_BUILTINS = {"read_file", "write_file", "search_knowledge", "web_fetch", "execute_ckvs_query"}


def actor(organization: Organization) -> Actor:
    return Actor("system", "tests", organization.slug)


def organization(slug: str, tier: str = "Enterprise") -> Organization:
    """With the product's own tools."""
    return organizations.copied(slug, tier)


def agent(organization: Organization, slug: str | None = None, **grants: Any) -> Agent:
    """One that may execute every tool of its groups, unless `tools` or `tool_groups` name some."""
    slug = slug or f"agent-{uuid4().hex[:8]}"
    if not {"tools", "tool_groups", "giver"} & grants.keys():
        return organizations.copied_agent(organization, slug, **grants)
    return account_actions.create_agent(
        organization=organization, slug=slug, by=actor(organization), **grants
    )


def person(organization: Organization, **fields: Any) -> User:
    return User.objects.create_user(f"p-{uuid4().hex[:8]}", organization=organization, **fields)


def superuser(organization: Organization) -> User:
    """An administrator whose password is `correct horse`."""
    return User.objects.create(
        username=f"admin-{uuid4().hex[:8]}",
        password=_hashed("correct horse"),
        organization=organization,
        is_staff=True,
        is_superuser=True,
    )


@lru_cache
def _hashed(password: str) -> str:
    """Slow on purpose, so it is done once."""
    return make_password(password)


def token(user: User, **options: Any) -> str:
    return account_actions.create_token(user=user, by=actor(user.organization), **options)[1]


def caller(agent: Agent) -> Caller:
    return caller_of_token(token(agent.service_account))


def call(tool: str, parameters: Any = None, **fields: Any) -> Call:
    return Call(tool_name=tool, parameters=parameters or {}, **fields)


def definition(name: str = "echo", **fields: Any) -> dict[str, Any]:
    """A custom Python tool that anybody in `default` may call."""
    return {
        "name": name,
        "type": "code",
        "description": "Returns what it was given.",
        "parameters": [
            {"name": "text", "type": "String", "description": "Anything.", "required": True}
        ],
        "implementation": {"source": PYTHON},
        **fields,
    }


def register(organization: Organization, definition: dict[str, Any]) -> Tool:
    return register_tool(organization=organization, definition=definition, by=actor(organization))


def tool(organization: Organization, name: str = "echo", **fields: Any) -> Tool:
    return register(organization, definition(name, **fields))


def install(organization: Organization) -> None:
    """The product's own tools."""
    install_builtins(organization=organization, by=actor(organization))


def workspace_file(organization: Organization, path: str, content: bytes) -> None:
    """As a tool would have written it: it is whose the workspace is."""
    workspace = workspace_path(organization.slug)
    place = workspace / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    place.chmod(0o644)
    if os.geteuid() == 0:
        owner = workspace.stat()
        for one in (place, *(place.parents[: len(Path(path).parents) - 1])):
            os.chown(one, owner.st_uid, owner.st_gid)


def execution(agent: Agent, name: str = "echo", **fields: Any) -> Execution:
    """An accepted, unclaimed call. Fields that a call does not have are its parameters."""
    options = {key: fields.pop(key) for key in [*fields] if key in Call.__dataclass_fields__}
    parameters = fields or {"text": "x"}
    return admit(caller(agent), call(name, parameters, **options))


def api(agent: Agent) -> Api:
    return Api(token(agent.service_account))


def permit(user: User, *codenames: str) -> None:
    """Give a person permissions of the app `tools`."""
    found = Permission.objects.filter(content_type__app_label="tools", codename__in=codenames)
    user.user_permissions.add(*found)


def claim(execution_id: UUID, worker: str = "gone", **options: Any) -> Execution | None:
    """The row that a worker has taken, without its gates; None where it may not."""
    with transaction.atomic():
        found = Execution.objects.candidate(execution_id, **options)
        taken = found and Execution.objects.take(found, worker=worker, lease_s=60)
    return found if taken else None


def claimed(execution: Execution, times: int = 1, worker: str = "gone") -> Execution:
    """Claimed as often by workers of which each but the last has lost it again."""
    for again in range(times):
        if again:
            release(execution)
        assert claim(execution.pk, worker=worker) is not None
    return Execution.objects.get(pk=execution.pk)


def end_execution(execution: Execution, **fields: Any) -> None:
    """Over, as its worker leaves it. What ended earlier was made then."""
    claimed(execution)
    over = {"status": Status.SUCCESS, "completed_at": timezone.now(), "lease_until": None} | fields
    made = Least("created_at", Value(over["completed_at"], DateTimeField()))
    Execution.objects.filter(pk=execution.pk).update(**{"created_at": made} | over)


def release(execution: Execution) -> None:
    """Back to the queue, as the reaper puts what a lost worker had."""
    Execution.objects.filter(pk=execution.pk).update(
        status=Status.PENDING, lease_until=None, started_at=None, worker=""
    )


def uvx_allowed() -> dict[str, StdioServer]:
    """An operator's list of one command, which is never started."""
    arguments, variables = ["mcp-[a-z-]+"], ["TOKEN"]
    return read_stdio_servers(
        {"uvx": {"command": "/usr/bin/uvx", "arguments": arguments, "variables": variables}}
    )


class QuickHasher(PBKDF2PasswordHasher):
    """The product's own, but of one iteration instead of a million: half a second less for each
    password that a test sets or gives."""

    iterations = 1


BUILTIN_NAMES = sorted(definition["name"] for definition in DEFINITIONS)


BUILTIN_CATEGORIES = {definition["name"]: definition["category"] for definition in DEFINITIONS}


BUILTINS_BEYOND_CORE = [
    name for name in BUILTIN_NAMES if name not in _CORE_BUILTINS | IN_EVERY_LICENSE
]
