"""`/api/v1/groups`: which groups there are, and which tools stand in them."""

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.base import CallerView
from tools.api.bodies import ErrorAnswer, GroupAnswer, GroupBody, GroupChange, GroupPage
from tools.catalog import actions
from tools.catalog.registry import CatalogGroup, Snapshot
from tools.definitions.names import WILDCARD
from tools.errors import Conflict, NotFound
from tools.models import ToolGroup
from tools.policy import authorization
from tools.policy.decision import Asked
from tools.policy.people import may
from tools.shapes import group_shape


class GroupView(CallerView):
    """What the list and one group have in common."""

    def visible(self, group: CatalogGroup) -> bool:
        granted = self.caller.granted_groups
        return group.name in granted or WILDCARD in granted or may(self.caller, "view_toolgroup")

    def shape(self, group: CatalogGroup, snapshot: Snapshot) -> dict[str, object]:
        if may(self.caller, "view_tool"):
            tools = [t for t in snapshot.sorted_tools if group.name in t.definition.groups]
        else:
            asked = Asked(frozenset([group.name]), "undefined")
            tools = authorization.usable_tools(self.caller, asked, snapshot)
        return group_shape(group, [tool.name for tool in tools])


class GroupList(GroupView):
    @extend_schema(operation_id="list_groups", responses={200: GroupPage})
    def get(self, request: Request) -> Response:
        """The groups the caller was granted, with the tools it sees in them."""
        snapshot = self.snapshot
        shown = [
            self.shape(group, snapshot)
            for group in sorted(snapshot.groups.values(), key=lambda group: group.name)
            if self.visible(group)
        ]
        return Response({"results": shown, "next": None, "previous": None})

    @extend_schema(
        operation_id="create_group",
        request=GroupBody,
        responses={201: GroupAnswer, 409: ErrorAnswer},
    )
    def post(self, request: Request) -> Response:
        self.require("add_toolgroup")
        wanted = self.body(GroupBody)
        if ToolGroup.objects.filter(organization=self.organization, name=wanted["name"]).exists():
            raise Conflict(f"There is a group {wanted['name']} already.", code="group_exists")
        actions.save_group(organization=self.organization, by=self.actor, **wanted)
        snapshot = self.current()
        shape = self.shape(snapshot.groups[wanted["name"]], snapshot)
        return Response(shape, status.HTTP_201_CREATED)


class GroupDetail(GroupView):
    @extend_schema(operation_id="get_group", responses={200: GroupAnswer, 404: ErrorAnswer})
    def get(self, request: Request, name: str) -> Response:
        return Response(self._shape(name, self.snapshot))

    @extend_schema(
        operation_id="replace_group",
        request=GroupChange,
        responses={200: GroupAnswer, 404: ErrorAnswer},
    )
    def put(self, request: Request, name: str) -> Response:
        return self.patch(request, name)

    @extend_schema(
        operation_id="change_group",
        request=GroupChange,
        responses={200: GroupAnswer, 404: ErrorAnswer},
    )
    def patch(self, request: Request, name: str) -> Response:
        self.require("change_toolgroup")
        group = self._row(name)
        wanted = self.body(GroupChange)
        actions.save_group(organization=self.organization, name=group.name, by=self.actor, **wanted)
        return Response(self._shape(name, self.current()))

    @extend_schema(
        operation_id="delete_group", responses={204: None, 404: ErrorAnswer, 409: ErrorAnswer}
    )
    def delete(self, request: Request, name: str) -> Response:
        """Refused while tools name the group."""
        self.require("delete_toolgroup")
        actions.delete_group(group=self._row(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _row(self, name: str) -> ToolGroup:
        row = ToolGroup.objects.filter(organization=self.organization, name=name).first()
        if row is None:
            raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
        return row

    def _shape(self, name: str, snapshot: Snapshot) -> dict[str, object]:
        group = snapshot.groups.get(name)
        if group is None or not self.visible(group):
            raise NotFound(f"There is no group {name[:100]!r}.", code="group_not_found")
        return self.shape(group, snapshot)
