"""`/api/v1/tools`: the tools that a caller may use; for people, the whole catalog."""

import time
from collections.abc import Callable
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    PolymorphicProxySerializer,
    extend_schema,
    extend_schema_serializer,
)
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from sandbox.spec import IsolationLevel
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import (
    BY_NAME,
    IN_SESSION,
    Page,
    paginate_ranked_tools,
    paginate_tools,
    tool_key,
)
from tools.api.common.serializer_fields import (
    choice_field,
)
from tools.api.common.views import CallerView
from tools.api.documentation import CODE_TOOL
from tools.authorization import request_records
from tools.authorization.listings import usable_tools, visible_tool
from tools.catalog import actions
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.search.tool_words import note_search
from tools.catalog.signatures.version_signatures import check_current
from tools.catalog.snapshot import CatalogTool
from tools.definitions.callers import Scope
from tools.definitions.texts.tool_formats import FORMATTERS, ToolTextFormat
from tools.definitions.tool import Definition
from tools.definitions.values.strict_json import MAX_VALUES
from tools.definitions.vocabulary import (
    ArgumentValidation,
    Category,
    Delivery,
    ParameterType,
    ToolType,
)
from tools.insight.workflow_findings import findings_about
from tools.models import ToolVersion
from tools.models.tool import Origin, ToolStatus
from tools.shapes.catalog import tool_here, tool_shape, version_shape
from tools.web.cursor_pagination import PAGING_PARAMETERS, CursorPages, paging_parameters
from tools.web.reauthentication import Proof, by_method

DEFINITION = "definition"
FORMAT = OpenApiParameter(
    "format",
    OpenApiTypes.STR,
    enum=[DEFINITION, *ToolTextFormat],
    description="How each is told: for a model of that kind, or as text for a prompt.",
)
REQUEST = [
    OpenApiParameter("group", OpenApiTypes.STR, many=True, description="Requested groups."),
    OpenApiParameter("state", OpenApiTypes.STR, description="Current workflow state."),
    OpenApiParameter(
        "session", OpenApiTypes.STR, description="A session of the caller: its groups and state."
    ),
]
LISTING = [
    *REQUEST,
    OpenApiParameter("category", OpenApiTypes.STR, enum=[*Category]),
    OpenApiParameter("capability", OpenApiTypes.STR, many=True),
    OpenApiParameter(
        "q",
        OpenApiTypes.STR,
        description="Words; the tools that fit come ranked, the best first. Any word may fit: of "
        "name, title, description, capabilities or parameters.",
    ),
    BY_NAME,
    *PAGING_PARAMETERS,
]
ENABLES = by_method(post=Proof.NEEDED)
DISABLES = by_method(post=Proof.NOT_NEEDED)
_VERSIONS = {"-number": "-number", "number": "number"}


class ParameterBody(serializers.Serializer[Any]):
    name = serializers.CharField()
    type = choice_field(ParameterType)
    description = serializers.CharField()
    required = serializers.BooleanField(required=False)  # type: ignore[assignment]
    default = serializers.JSONField(required=False, allow_null=True)
    enum = serializers.ListField(required=False, allow_null=True)
    schema = serializers.DictField(required=False, allow_null=True)


class ConstraintsBody(serializers.Serializer[Any]):
    max_execution_time = serializers.CharField(required=False)
    max_output_size = serializers.IntegerField(required=False)
    allow_side_effects = serializers.BooleanField(required=False)
    required_isolation = serializers.CharField(required=False)
    sandbox_profile = serializers.CharField(required=False)


class DefinitionBody(serializers.Serializer[Any]):
    """A tool definition. `tools.definitions` reads it and names every wrong field."""

    name = serializers.CharField(max_length=128)
    type = choice_field(ToolType)
    title = serializers.CharField(required=False, allow_null=True)
    description = serializers.CharField()
    category = serializers.CharField(required=False)
    parameters = ParameterBody(many=True, required=False)
    input_schema = serializers.DictField(required=False)
    output_schema = serializers.DictField(required=False)
    constraints = ConstraintsBody(required=False)
    required_permissions = serializers.ListField(child=serializers.CharField(), required=False)
    requires_confirmation = serializers.BooleanField(required=False)
    group = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    state = serializers.CharField(required=False, allow_null=True)
    available_in_states = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True
    )
    rate_limit_per_minute = serializers.IntegerField(required=False, allow_null=True)
    cost_per_invocation = serializers.CharField(required=False)
    cost_per_cache_hit = serializers.CharField(required=False)
    cache_ttl = serializers.CharField(required=False, allow_null=True)
    transform = serializers.DictField(
        required=False, help_text="`select`, `redact` and `observation`: what becomes of an output."
    )
    delivery = choice_field(Delivery, required=False)
    argument_validation = choice_field(ArgumentValidation, required=False)
    capabilities = serializers.ListField(child=serializers.CharField(), required=False)
    implementation = serializers.DictField(required=False)
    version = serializers.CharField(required=False)
    metadata = serializers.DictField(required=False)
    enabled = serializers.BooleanField(required=False)
    max_concurrency = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="How many of its calls run at once; null is no limit. Set by PUT and PATCH.",
    )
    critical = serializers.BooleanField(
        required=False, help_text="Every call needs the consent of two people."
    )


class DefinitionAnswer(DefinitionBody):
    """A tool definition, with what the catalog knows about it."""

    category = choice_field(Category, required=False)  # type: ignore[assignment]  # a request may alias
    token_estimate = serializers.IntegerField(help_text="What it costs a model's context, about.")
    status = choice_field(ToolStatus)
    status_reason = serializers.CharField()
    origin = choice_field(Origin)
    effective_isolation = choice_field(
        IsolationLevel,
        required=False,
        help_text="The level it runs at here; shown of one tool, not in lists.",
    )
    digest = serializers.CharField()
    signature = serializers.DictField()
    authentic = serializers.BooleanField(
        help_text="Whether it is what was signed; what is not is never run."
    )
    findings = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="What the linter says of it; shown when it was saved. See lint_tools.",
    )


class ToolPage(Page):
    results = DefinitionAnswer(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


@extend_schema_serializer(component_name="ToldPage")
class FormattedToolPage(Page):
    results = serializers.ListField(child=serializers.DictField())
    warnings = serializers.ListField(child=serializers.CharField())


class VersionAnswer(serializers.Serializer[Any]):
    version = serializers.CharField()
    number = serializers.IntegerField()
    digest = serializers.CharField()
    signature = serializers.DictField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()
    change_note = serializers.CharField()
    origin = choice_field(Origin)
    definition = serializers.JSONField(help_text="As it is stored, authentic or not.")


class VersionPage(Page):
    results = VersionAnswer(many=True)


TOOL_LIST = PolymorphicProxySerializer("ToolList", [ToolPage, FormattedToolPage], None)


class ToolListing(CallerView):
    """A view of the tools that exist for a request and its caller, or of what follows from them."""

    most_values = MAX_VALUES

    def list_usable_tools(self) -> tuple[list[CatalogTool], list[str]]:
        """All tools, by name, and warnings about the request; counted and recorded."""
        began, asked = time.perf_counter(), self.effective_request()
        request_records.count_request(asked, self.snapshot)
        warnings = self.check_requested_groups(asked, self.snapshot)
        tools = usable_tools(self.caller, asked, self.snapshot)
        request_records.record_listing(
            self.caller, asked, self.snapshot, shown=len(tools), began=began
        )
        return tools, warnings

    def page(self, tools: list[CatalogTool]) -> dict[str, Any]:
        """Of those that the query asks for, by name; the best first where words are searched
        for."""
        text = self.query.get("q", "")
        tools = [tool for tool in tools if self._is_requested(tool)]
        if not text.strip():
            return paginate_tools(self.request, tools)
        found = [one.tool for one in relevant_tools(rank_tools(self.snapshot, text, tools))]
        if "cursor" not in self.query:  # further pages ask nothing new
            note_search(self.caller, text, found)
        if "ordering" in self.query:
            return paginate_tools(self.request, sorted(found, key=tool_key))
        return paginate_ranked_tools(self.request, found)

    def _is_requested(self, tool: CatalogTool) -> bool:
        raw = tool.definition.raw
        return raw["category"] == self.query.get("category", raw["category"]) and set(
            self.query.get("capability", ())
        ) <= set(raw["capabilities"])


class ToolView(ConditionalView):
    """What makes or changes a tool."""

    volatile = frozenset({"findings"})  # the linter's, shown where a tool is written
    derived = frozenset({"effective_isolation"})

    def representation(self, name: str, **_: Any) -> Representation:
        actions.find_tool(self.organization, name)
        snapshot = self.current_snapshot()
        return Representation(tool_here(snapshot.tools[name], snapshot))


class ToolList(ToolView, ToolListing):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="list_tools",
        parameters=[*LISTING, FORMAT],
        responses=TOOL_LIST,
    )
    def get(self, request: Request) -> Response:
        """The tools that exist for this request and caller."""
        tools, warnings = self.list_usable_tools()
        shape = self._shape()
        page = self.page(tools)
        page["results"] = [shape(tool) for tool in page["results"]]
        return Response(page | {"warnings": warnings})

    def _shape(self) -> Callable[[CatalogTool], dict[str, Any]]:
        wanted = self.query.get("format", DEFINITION)
        if wanted == DEFINITION:
            return tool_shape
        tell = FORMATTERS[ToolTextFormat(wanted)]
        return lambda tool: tell(tool.definition)

    @extend_schema(
        operation_id="create_tool",
        examples=[CODE_TOOL],
        request=DefinitionBody,
        responses={201: DefinitionAnswer},
    )
    def post(self, request: Request) -> Response:
        """Register a custom tool."""
        self.require("add_tool")
        tool = actions.register_tool(
            organization=self.organization, definition=self.json_body(), by=self.actor
        )
        headers = {"Location": f"/api/v1/tools/{tool.name}"}
        return self.resource_response(saved_tool(self, tool.name), status.HTTP_201_CREATED, headers)


class ToolDetail(ToolView):
    narrowable = True
    scope = Scope.CATALOG
    proof = by_method(put=Proof.NOT_NEEDED, patch=Proof.NOT_NEEDED, delete=Proof.NEEDED)
    most_values = MAX_VALUES

    @extend_schema(
        operation_id="get_tool",
        parameters=[IN_SESSION],
        responses=DefinitionAnswer,
    )
    def get(self, request: Request, name: str) -> Response:
        """One definition: for an agent a tool it may use, for people any they may view."""
        tool = visible_tool(self.caller, self.snapshot, name)
        return self.resource_response(Representation(tool_here(tool, self.snapshot)))

    @extend_schema(
        operation_id="replace_tool",
        request=DefinitionBody,
        responses=DefinitionAnswer,
    )
    @conditional("change_tool", row="tool")
    def put(self, request: Request, name: str) -> Response:
        """Replace the definition by a new version."""
        return self._change(name, lambda current: self.json_body())

    @extend_schema(
        operation_id="change_tool",
        request=OpenApiTypes.OBJECT,
        responses=DefinitionAnswer,
    )
    @conditional("change_tool", row="tool")
    def patch(self, request: Request, name: str) -> Response:
        """A new version with some fields changed."""
        changes = self.json_body()
        return self._change(name, lambda current: actions.amended(current, changes))

    @extend_schema(operation_id="delete_tool", responses={204: None})
    @conditional("delete_tool", row="tool")
    def delete(self, request: Request, name: str) -> Response:
        actions.delete_tool(tool=actions.find_tool(self.organization, name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _change(self, name: str, wanted: Callable[[Definition], Any]) -> Response:
        """`wanted` derives the new definition from the current one while its row is locked."""
        tool = actions.changing(actions.find_tool(self.organization, name))
        check_current(tool)
        assert tool.version is not None
        definition = wanted(tool.version.definition)
        tool = actions.update_tool(tool=tool, definition=definition, by=self.actor)
        actions.set_switches(tool=tool, definition=definition, by=self.actor)
        self.require("change_tool", tool=tool.name)  # a narrowed token cannot move it elsewhere
        return self.resource_response(saved_tool(self, name))


def saved_tool(view: CallerView, name: str) -> Representation:
    """A tool after this very request's change, with the linter's findings."""
    snapshot = view.current_snapshot()
    found = [finding.as_dict() for finding in findings_about(snapshot, name)]
    return Representation(tool_here(snapshot.tools[name], snapshot) | {"findings": found})


class ToolSwitch(ToolView):
    """`enable` and `disable`."""

    narrowable = True
    scope = Scope.CATALOG
    bodiless = frozenset({"POST"})

    enabled: bool = True
    proof = ENABLES

    @extend_schema(request=None, responses=DefinitionAnswer)
    @conditional("change_tool", row="tool")
    def post(self, request: Request, name: str) -> Response:
        tool = actions.find_tool(self.organization, name)
        actions.set_enabled(tool=tool, enabled=self.enabled, by=self.actor, reason="api")
        return self.resource_response(saved_tool(self, name))


class ToolVersions(CallerView):
    @extend_schema(
        operation_id="list_tool_versions",
        parameters=paging_parameters(_VERSIONS),
        responses=VersionPage,
    )
    def get(self, request: Request, name: str) -> Response:
        """Every version, the newest first."""
        self.require("view_tool")
        tool = actions.find_tool(self.organization, name)
        pages = CursorPages(_VERSIONS)
        page: list[ToolVersion] = pages.paginate_queryset(tool.versions.all(), request, self) or []
        return pages.get_paginated_response([version_shape(version) for version in page])


class ToolRestore(ToolView):
    narrowable = True
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NEEDED)
    bodiless = frozenset({"POST"})

    @extend_schema(
        operation_id="restore_tool_version",
        request=None,
        responses=DefinitionAnswer,
    )
    @conditional("change_tool", row="tool")
    def post(self, request: Request, name: str, version: str) -> Response:
        """Restore an earlier version as a new version."""
        tool = actions.find_tool(self.organization, name)
        actions.restore_version(tool=tool, label=version, by=self.actor)
        self.require("change_tool", tool=name)  # a narrowed token cannot move it to another group
        return self.resource_response(saved_tool(self, name))
