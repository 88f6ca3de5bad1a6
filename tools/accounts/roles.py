"""Predefined roles of people, as Django groups that the product creates and keeps up to date.

A group spans organizations and its members do not: a role applies where its holder acts. An
administrator holds every permission of the other roles, since users grant only what they hold.
Groups that an operator created are not touched.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.db.models import Q

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.accounts.user_permissions import count_up
from tools.definitions.callers import CallerKind
from tools.models import Organization, User

PREFIX = "role:"
APPS = ("tools", "audit")
_EVERY_VERB = ("add", "change", "delete", "view")
_SEEN = (
    "confirmationrule", "contentschema", "licensetier", "mcpserver", "sandboxprofile", "signingkey",
    "tool", "toolgroup", "toolservice", "toolversion", "upstreamchange",
)  # fmt: skip
_MANAGED = ("contentschema", "knowledgeentry", "mcpserver", "tool", "toolgroup", "toolservice")
_ADMINISTERED = (
    *_MANAGED, "agent", "allowance", "confirmationrule", "egresscredential", "mcpauthorization",
    "mcpcredential", "mcpoauthclient", "message", "messagechannel", "pin", "sandboxprofile",
    "signingkey", "token",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Role:
    """`opens_administration`: the holder may open `/admin/`, within the role's permissions."""

    name: str
    label: str
    says: str
    permissions: frozenset[str]
    opens_administration: bool = False

    @property
    def group(self) -> str:
        return PREFIX + self.name


@cache
def roles() -> tuple[Role, ...]:
    """The table of roles, made when all models are loaded, so that a role that reads all also reads
    new ones."""
    sees = _named("tools", ("view",), _SEEN)
    reads = frozenset(_views())
    runs = _named("tools", ("view",), ("execution", "executionevent"))
    decides = _named("tools", ("view",), ("confirmation", "confirmationdecision"))
    decides |= {"tools.decide_confirmation"}
    manages = _named("tools", _EVERY_VERB, _MANAGED)
    return (
        Role(
            "administrator",
            "Administrator",
            "Manages everything of its organization and its people, but no superuser, no tier and "
            "no other organization.",
            reads
            | decides
            | manages
            | _named("tools", _EVERY_VERB, _ADMINISTERED)
            | _named("audit", _EVERY_VERB, ("alertchannel",))
            | {"tools.add_user", "tools.change_user", "tools.change_execution"}
            | {"tools.change_session", "tools.execute_tool", "tools.execute_toolgroup"}
            | {"audit.change_alert"},
            opens_administration=True,
        ),
        Role(
            "tool-manager",
            "Tool manager",
            "Writes, imports and switches tools, their groups, services and servers, and sees how "
            "calls go.",
            sees
            | runs
            | manages
            | _named("tools", ("view",), ("agent", "egresscredential", "mcpcredential")),
        ),
        Role(
            "approver",
            "Approver",
            "Approves and rejects calls that are held, and sees what they would do.",
            sees | runs | decides,
        ),
        Role(
            "auditor",
            "Auditor",
            "Reads everything, evidence and people too, and changes nothing.",
            reads,
            opens_administration=True,
        ),
        Role("viewer", "Viewer", "Looks at the catalog and where its tools come from.", sees),
    )


def role_of(group: str) -> Role | None:
    """The role that a group of this name is."""
    return next((role for role in roles() if role.group == group), None)


def offered(giver: User) -> list[Role]:
    """The roles that a person may grant and revoke: nothing beyond what they hold."""
    if giver.is_superuser:
        return [*roles()]
    held = giver.get_all_permissions()
    return [role for role in roles() if role.permissions <= held]


@transaction.atomic
def keep_roles() -> None:
    """Create each missing group, and correct each one with other permissions."""
    rows = Permission.objects.filter(content_type__app_label__in=APPS)
    known = {_written(row): row for row in rows.select_related("content_type")}
    for role in roles():
        group, _ = Group.objects.select_for_update().get_or_create(name=role.group)
        held = {_written(row) for row in group.permissions.select_related("content_type")}
        if held != role.permissions:
            count_up(User.objects.filter(groups=group))
            group.permissions.set([known[name] for name in role.permissions])
            _note(group, held, role.permissions)


def _note(group: Group, before: Iterable[str], after: Iterable[str]) -> None:
    """Audited where the group has members, and in the first organization."""
    first = Organization.objects.order_by("created_at").values("pk")[:1]
    concerned = Organization.objects.filter(Q(users__groups=group) | Q(pk__in=first)).distinct()
    said = difference({"permissions": sorted(before)}, {"permissions": sorted(after)})
    for slug in concerned.order_by("slug").values_list("slug", flat=True):
        record(
            Event.ROW_CHANGE,
            by=Actor(CallerKind.SYSTEM, "roles", slug),
            outcome=Outcome.CHANGED,
            subject=f"group:{group.name}",
            details=said,
        )


def _named(app: str, verbs: Iterable[str], rows: Iterable[str]) -> frozenset[str]:
    return frozenset(f"{app}.{verb}_{row}" for verb, row in product(verbs, rows))


def _views() -> Iterator[str]:
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            if "view" in model._meta.default_permissions:
                yield f"{app}.view_{model._meta.model_name}"


def _written(permission: Permission) -> str:
    return f"{permission.content_type.app_label}.{permission.codename}"
