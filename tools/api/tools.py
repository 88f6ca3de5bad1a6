"""`/api/v1/tools`: what a caller may use, and, for people, what there is."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools import metrics
from tools.api.base import CallerView
from tools.api.bodies import (
    DefinitionBody,
    ErrorAnswer,
    ExplanationAnswer,
    ToolPage,
    VersionAnswer,
)
from tools.api.pagination import page_of_tools
from tools.api.schema import CODE_TOOL, PAGING
from tools.catalog import actions
from tools.catalog.registry import CatalogTool
from tools.definitions.vocabulary import Category
from tools.errors import Malformed
from tools.policy import authorization
from tools.policy.decision import Question
from tools.policy.isolation import effective_level
from tools.policy.people import may
from tools.policy.visibility import visible_tool
from tools.shapes import tool_here, tool_shape, version_shape

REQUEST = [
    OpenApiParameter("group", OpenApiTypes.STR, many=True, description="Requested groups."),
    OpenApiParameter("state", OpenApiTypes.STR, description="Current workflow state."),
]
LISTING = [
    *REQUEST,
    OpenApiParameter("category", OpenApiTypes.STR, enum=[*Category]),
    OpenApiParameter("capability", OpenApiTypes.STR, many=True),
    OpenApiParameter("q", OpenApiTypes.STR, description="Words in name, title or description."),
    *PAGING,
]


class ToolList(CallerView):
    @extend_schema(
        operation_id="list_tools", parameters=LISTING, responses={200: ToolPage, 403: ErrorAnswer}
    )
    def get(self, request: Request) -> Response:
        """The tools that exist for this request and caller."""
        asked = self.asked()
        authorization.count_request(asked, self.snapshot)
        warnings = self.granted(asked, self.snapshot)
        tools = authorization.usable_tools(self.caller, asked, self.snapshot)
        metrics.filtered_tools.observe(len(tools))
        if not tools:
            metrics.empty_lists.inc()
        page = page_of_tools(request, [tool for tool in tools if self._wanted(tool)])
        page["results"] = [tool_shape(tool) for tool in page["results"]]
        return Response(page | {"warnings": warnings})

    @extend_schema(
        operation_id="create_tool",
        examples=[CODE_TOOL],
        request=DefinitionBody,
        responses={201: DefinitionBody, 400: ErrorAnswer, 409: ErrorAnswer},
    )
    def post(self, request: Request) -> Response:
        """Register a custom tool."""
        self.require("add_tool")
        tool = actions.register_tool(
            organization=self.organization, definition=request.data, by=self.actor
        )
        address = f"/api/v1/tools/{tool.name}"
        shape = shown_now(self, tool.name)
        return Response(shape, status.HTTP_201_CREATED, headers={"Location": address})

    def _wanted(self, tool: CatalogTool) -> bool:
        query, raw = self.request.query_params, tool.definition.raw
        category = query.get("category")
        if category and category not in set(Category):
            raise Malformed(f"category must be one of {', '.join(Category)}.")
        text = f"{tool.name} {raw['title'] or ''} {raw['description']}".lower()
        return (
            (not category or raw["category"] == category)
            and set(query.getlist("capability")) <= set(raw["capabilities"])
            and all(word in text for word in query.get("q", "").lower().split())
        )


class ToolDetail(CallerView):
    @extend_schema(operation_id="get_tool", responses={200: DefinitionBody, 404: ErrorAnswer})
    def get(self, request: Request, name: str) -> Response:
        """One definition: for an agent a tool it may use, for people any they may view."""
        tool = visible_tool(self.caller, self.snapshot, name)
        return Response(tool_here(tool, self.snapshot))

    @extend_schema(
        operation_id="replace_tool",
        request=DefinitionBody,
        responses={200: DefinitionBody, 400: ErrorAnswer},
    )
    def put(self, request: Request, name: str) -> Response:
        """Replace the definition by a new version."""
        return self._change(name, request.data)

    @extend_schema(
        operation_id="change_tool",
        request=OpenApiTypes.OBJECT,
        responses={200: DefinitionBody, 400: ErrorAnswer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """A new version with some fields changed."""
        changes = self.given()
        self.require("change_tool")
        tool = actions.find_tool(self.organization, name)
        assert tool.version is not None
        return self._change(name, actions.amended(tool.version.definition, changes))

    @extend_schema(
        operation_id="delete_tool", responses={204: None, 404: ErrorAnswer, 409: ErrorAnswer}
    )
    def delete(self, request: Request, name: str) -> Response:
        self.require("delete_tool")
        actions.delete_tool(tool=actions.find_tool(self.organization, name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _change(self, name: str, definition: Any) -> Response:
        self.require("change_tool")
        tool = actions.find_tool(self.organization, name)
        tool = actions.update_tool(tool=tool, definition=definition, by=self.actor)
        wanted = definition.get("enabled")
        if isinstance(wanted, bool) and wanted != tool.enabled:
            actions.set_enabled(tool=tool, enabled=wanted, by=self.actor)
        return Response(shown_now(self, name))


def shown_now(view: CallerView, name: str) -> dict[str, Any]:
    """A tool as this very request has left it."""
    snapshot = view.current()
    return tool_here(snapshot.tools[name], snapshot)


class ToolSwitch(CallerView):
    """`enable` and `disable`."""

    enabled: bool = True

    @extend_schema(request=None, responses={200: DefinitionBody, 404: ErrorAnswer})
    def post(self, request: Request, name: str) -> Response:
        self.require("change_tool")
        tool = actions.find_tool(self.organization, name)
        actions.set_enabled(tool=tool, enabled=self.enabled, by=self.actor, reason="api")
        return Response(shown_now(self, name))


class ToolVersions(CallerView):
    @extend_schema(
        operation_id="list_tool_versions",
        responses={200: VersionAnswer(many=True), 404: ErrorAnswer},
    )
    def get(self, request: Request, name: str) -> Response:
        """Every version, the newest first."""
        self.require("view_tool")
        tool = actions.find_tool(self.organization, name)
        versions = [version_shape(version) for version in tool.versions.all()[:200]]
        return Response({"results": versions, "next": None, "previous": None})


class ToolRestore(CallerView):
    @extend_schema(
        operation_id="restore_tool_version",
        request=None,
        responses={200: DefinitionBody, 404: ErrorAnswer},
    )
    def post(self, request: Request, name: str, version: str) -> Response:
        """Make what an earlier version said the current one, as a new version."""
        self.require("change_tool")
        tool = actions.find_tool(self.organization, name)
        actions.restore_version(tool=tool, label=version, by=self.actor)
        return Response(shown_now(self, name))


class ToolExplanation(CallerView):
    @extend_schema(
        operation_id="explain_tools",
        parameters=REQUEST,
        responses={200: OpenApiResponse(ExplanationAnswer), 403: ErrorAnswer},
    )
    def get(self, request: Request) -> Response:
        """Every tool of the caller's organization with every gate's answer."""
        asked, snapshot = self.asked(), self.snapshot
        warnings = self.granted(asked, snapshot)
        everyone = may(self.caller, "view_tool")
        rows = []
        for tool in snapshot.sorted_tools:
            verdicts = authorization.explain(Question(self.caller, tool, asked, snapshot))
            held = {verdict.gate: verdict.passed for verdict in verdicts}
            if everyone or held["object_permission"]:
                rows.append(
                    {
                        "tool": tool.name,
                        "available": all(held.values()),
                        "effective_isolation": effective_level(tool, snapshot),
                        "gates": [verdict.as_dict() for verdict in verdicts],
                    }
                )
        return Response({"results": rows, "warnings": warnings})
