"""`/api/v1/groups`: tool groups, their schedules and their tools."""

from functools import cached_property
from typing import Any
from urllib.parse import quote

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field, inline_serializer
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts.grants.grant_actions import create_group, save_group
from tools.accounts.user_permissions import check_group_change, may
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import BY_NAME, IN_SESSION, Page, paginate_by_key
from tools.api.common.serializer_fields import Strict, Text, text_list
from tools.authorization.listings import usable_tools
from tools.catalog.group_openings import openings_of
from tools.catalog.groups import Member, Through, delete_group, members_of, memberships
from tools.catalog.snapshot import CatalogGroup, Snapshot
from tools.definitions.callers import Scope
from tools.definitions.texts.names import WILDCARD
from tools.definitions.values.schedules import DAYS
from tools.errors import NotFound
from tools.models import ToolGroup
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest
from tools.shapes.catalog import group_shape
from tools.web.cursor_pagination import PAGING_PARAMETERS
from tools.web.reauthentication import Proof, by_method

WINDOWS = inline_serializer(
    "GroupWindow",  # one of its fields is named like a Python keyword
    {
        "days": serializers.ListField(
            child=serializers.ChoiceField(choices=DAYS),
            required=False,
            help_text="Every day when left out.",
        ),
        "from": serializers.RegexField(r"^\d\d:\d\d$", help_text="Such as 09:00."),
        "to": serializers.RegexField(
            r"^\d\d:\d\d$",
            help_text="Such as 17:00 or 24:00; what is not after `from` is on the next day.",
        ),
    },
    many=True,
)
NEW: dict[str, Any] = {
    "description": "",
    "permissions": [],
    "parent": None,
    "schedule": [],
    "max_queue_age_s": None,
    "max_cpu_percent": None,
}


@extend_schema_field(WINDOWS)
class Windows(serializers.JSONField):
    """Read by the action, which names what is wrong in each window."""


@extend_schema_field(OpenApiTypes.FLOAT)
class Bound(serializers.JSONField):
    """A number, read by the action; null is no bound."""


class GroupChange(Strict):
    description = Text(required=False, max_length=1000, allow_blank=True)
    permissions = text_list(required=False)
    parent = Text(  # type: ignore[assignment]
        required=False,
        allow_null=True,
        max_length=100,
        help_text="A tool in this group is also in its parent.",
    )
    schedule = Windows(
        required=False,
        help_text="When it is open, in the organization's time zone; without windows always.",
    )
    max_queue_age_s = Bound(
        required=False, allow_null=True, help_text="Closed while a call has waited longer."
    )
    max_cpu_percent = Bound(
        required=False, allow_null=True, help_text="Closed while the processors are busier."
    )


class GroupBody(GroupChange):
    name = Text(max_length=100)


class MemberAnswer(serializers.Serializer[Any]):
    tool = serializers.CharField()
    through = serializers.ChoiceField(
        choices=[str(one) for one in Through],
        help_text="`own`: it names the group. `source`: its service or server does. "
        "`parent`: it is in a group within this one.",
    )


class GroupAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    permissions = serializers.ListField(child=serializers.CharField())
    parent = serializers.CharField(allow_null=True)  # type: ignore[assignment]
    children = serializers.ListField(child=serializers.CharField())
    schedule = Windows()
    max_queue_age_s = serializers.FloatField(allow_null=True)
    max_cpu_percent = serializers.FloatField(allow_null=True)
    open = serializers.BooleanField()
    closed_reason = serializers.CharField(allow_null=True)
    tools = serializers.ListField(child=serializers.CharField())
    members = MemberAnswer(many=True)
    states = serializers.ListField(
        child=serializers.CharField(), help_text="That its tools are available in or lead to."
    )


class GroupPage(Page):
    results = GroupAnswer(many=True)


CHANGED = {200: GroupAnswer}


class GroupView(ConditionalView):
    """What the list and one group have in common."""

    volatile = frozenset({"children", "members", "tools", "states", "open", "closed_reason"})

    def representation(self, name: str) -> Representation:
        return self.group_representation(name, self.current_snapshot())

    def group_representation(self, name: str, snapshot: Snapshot) -> Representation:
        group = snapshot.groups.get(name)
        if group is None or not self.visible(name):
            raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
        return Representation(self.shape(group, snapshot))

    scope = Scope.CATALOG

    @cached_property
    def _sees_every_group(self) -> bool:
        return WILDCARD in self.caller.granted_groups or may(self.caller, "view_toolgroup")

    @cached_property
    def _sees_every_tool(self) -> bool:
        return may(self.caller, "view_tool")

    def visible(self, name: str) -> bool:
        return self._sees_every_group or name in self.caller.granted_groups

    def shape(self, group: CatalogGroup, snapshot: Snapshot) -> dict[str, Any]:
        """A group's parent and children are shown if the caller may see them."""
        children = [one.name for one in snapshot.groups.values() if one.parent == group.name]
        parent = group.parent if group.parent and self.visible(group.parent) else None
        return group_shape(
            group,
            parent=parent,
            children=sorted(filter(self.visible, children)),
            closing=openings_of(snapshot).closings.get(group.name),
            members=self._members(group.name, snapshot),
            snapshot=snapshot,
        )

    def _members(self, name: str, snapshot: Snapshot) -> tuple[Member, ...]:
        if self._sees_every_tool:
            return members_of(name, snapshot)
        asked = EffectiveRequest(frozenset([name]), DEFAULT_STATE)
        usable = usable_tools(self.caller, asked, snapshot)
        return tuple(Member(tool.name, memberships(tool, snapshot)[name]) for tool in usable)


class GroupList(GroupView):
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_groups",
        parameters=[IN_SESSION, BY_NAME, *PAGING_PARAMETERS],
        responses=GroupPage,
    )
    def get(self, request: Request) -> Response:
        """The groups the caller was granted, with the tools it sees in them."""
        snapshot = self.snapshot
        page = paginate_by_key(request, sorted(filter(self.visible, snapshot.groups)), str)
        page["results"] = [self.shape(snapshot.groups[name], snapshot) for name in page["results"]]
        return Response(page)

    @extend_schema(
        operation_id="create_group",
        request=GroupBody,
        responses={201: GroupAnswer},
    )
    def post(self, request: Request) -> Response:
        self.require("add_toolgroup")
        wanted = self.body(GroupBody)
        create_group(giver=self.caller, organization=self.organization, by=self.actor, **wanted)
        snapshot = self.current_snapshot()
        shape = self.shape(snapshot.groups[wanted["name"]], snapshot)
        address = f"/api/v1/groups/{quote(wanted['name'])}"
        return self.resource_response(
            Representation(shape), status.HTTP_201_CREATED, headers={"Location": address}
        )


class GroupDetail(GroupView):
    narrowable = True
    proof = by_method(put=Proof.NEEDED, patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_group", parameters=[IN_SESSION], responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        return self.resource_response(self.group_representation(name, self.snapshot))

    @extend_schema(operation_id="replace_group", request=GroupChange, responses=CHANGED)
    @conditional("change_toolgroup", row="group")
    def put(self, request: Request, name: str) -> Response:
        """Replace the group; missing fields get the defaults of a new group."""
        return self._save_group(name, NEW)

    @extend_schema(operation_id="change_group", request=GroupChange, responses=CHANGED)
    @conditional("change_toolgroup", row="group")
    def patch(self, request: Request, name: str) -> Response:
        """Change the given fields. The change applies from every process's next request on."""
        return self._save_group(name, {})

    @extend_schema(operation_id="delete_group", responses={204: None})
    @conditional("delete_toolgroup", row="group")
    def delete(self, request: Request, name: str) -> Response:
        """Refused while tools, sources or groups within it name the group."""
        delete_group(group=self._find_group(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _save_group(self, name: str, otherwise: dict[str, Any]) -> Response:
        group = self._find_group(name)
        wanted = otherwise | self.body(GroupChange)
        check_group_change(self.caller, wanted)
        save_group(
            giver=self.caller,
            organization=self.organization,
            name=group.name,
            by=self.actor,
            **wanted,
        )
        return self.resource_response(self.representation(name))

    def _find_group(self, name: str) -> ToolGroup:
        row = ToolGroup.objects.filter(organization=self.organization, name=name).first()
        if row is None:
            raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
        return row
