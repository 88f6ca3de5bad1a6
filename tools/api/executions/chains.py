"""`/api/v1/chains`: chain documents. Each chain is a tool, and a run of it an execution."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.catalog.tools import REQUEST, ParameterBody, saved_tool
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.content_types import StrictJSONParser, YamlParser
from tools.api.common.idempotency import Keying, idempotency_key
from tools.api.common.pagination import BY_NAME, IN_SESSION, Page, paginate_tools
from tools.api.common.serializer_fields import State, Strict, text_list
from tools.api.common.views import CallerView
from tools.api.executions.executions import (
    WAIT,
    ExecutionAnswer,
    ToolCallBody,
    build_call,
    execute_call,
    wait_for_execution,
)
from tools.authorization.listings import usable_tools, visible_tool
from tools.catalog import actions
from tools.catalog.signatures.version_signatures import check_current
from tools.catalog.snapshot import CatalogTool
from tools.catalog.workflow.chains import doubts_about
from tools.definitions.callers import Scope
from tools.definitions.chains.chain_document import (
    ON_CANCEL,
    ON_ERROR,
    chain_definition,
    chain_document,
    chain_field,
)
from tools.definitions.results import Status
from tools.definitions.values.strict_json import MAX_VALUES
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition, Malformed, NotFound
from tools.execution.confirmations import load_confirmations
from tools.models import Execution, Tool
from tools.policy.questions import EffectiveRequest
from tools.shapes.catalog import tool_here
from tools.shapes.executions import execution_shape
from tools.web.cursor_pagination import PAGING_PARAMETERS
from tools.web.reauthentication import Proof, by_method
from tools.workflows import chains
from tools.workflows.chain_dry_run import dry_run


class CallBodyOfChain(serializers.Serializer[Any]):
    tool_name = serializers.CharField()
    parameters = serializers.DictField(
        help_text="Values, `$input`, `$step`, `$item`, `$text` or `$literal`."
    )


class RetriesBody(serializers.Serializer[Any]):
    attempts = serializers.IntegerField(required=False)
    wait = serializers.CharField(required=False, help_text="After the first, such as PT1S.")
    factor = serializers.IntegerField(required=False, help_text="By which each wait is longer.")


class UndoingBody(CallBodyOfChain):
    retries = RetriesBody(required=False, allow_null=True)
    timeout = serializers.CharField(required=False, allow_null=True)


class StepBody(UndoingBody):
    id = serializers.CharField()
    when = serializers.DictField(required=False, allow_null=True)
    for_each = serializers.JSONField(required=False, allow_null=True)
    parallel = serializers.IntegerField(required=False)
    on_error = serializers.ChoiceField(choices=ON_ERROR, required=False)
    compensate_with = UndoingBody(required=False, allow_null=True)


class ChainBody(serializers.Serializer[Any]):
    """A chain. Other fields of a tool's definition may be beside its steps."""

    name = serializers.CharField(max_length=128)
    description = serializers.CharField()
    parameters = ParameterBody(many=True, required=False)
    steps = StepBody(many=True)
    output = serializers.JSONField(required=False, help_text="Absent: the last step's output.")
    on_cancel = serializers.ChoiceField(choices=ON_CANCEL, required=False)
    group = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    requires_confirmation = serializers.BooleanField(required=False)
    output_schema = serializers.DictField(required=False)
    version = serializers.CharField(required=False)
    warnings = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="In answers: what may not fit between steps, by the schemas of their tools.",
    )


class ChainPage(Page):
    results = ChainBody(many=True)


class RehearsalBody(Strict):
    parameters = serializers.DictField(required=False, default=dict)
    group = text_list(required=False, allow_null=True, default=None)
    state = State()


class RefusalAnswer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()


class RehearsedCallAnswer(serializers.Serializer[Any]):
    refused = RefusalAnswer(allow_null=True)
    confirmation = serializers.ListField(child=serializers.CharField(), allow_null=True)


class RehearsedStepAnswer(RehearsedCallAnswer):
    id = serializers.CharField()
    tool_name = serializers.CharField()
    runs = serializers.ChoiceField(choices=["yes", "no", "unknown"])
    items = serializers.IntegerField(allow_null=True, help_text="Of its loop, where known.")
    parameters = serializers.DictField(help_text="`$unknown` where a step must have run.")
    # The field's name is also an attribute's of DRF's serializers.
    errors = serializers.ListField(  # type: ignore[assignment]
        child=serializers.DictField()
    )
    on_error = serializers.ChoiceField(choices=ON_ERROR)
    compensated_by = serializers.CharField(allow_null=True)
    compensation = RehearsedCallAnswer(allow_null=True, help_text="Of the tool that undoes it.")


class RehearsalAnswer(RehearsedCallAnswer):
    """Of the chain itself; its steps where it would take the parameters."""

    errors = serializers.ListField(  # type: ignore[assignment]
        child=serializers.DictField()
    )
    steps = RehearsedStepAnswer(many=True)


class RunStepAnswer(serializers.Serializer[Any]):
    place = serializers.CharField(help_text="`page`, `page/3`, `page#2`, `undo:page`.")
    execution_id = serializers.UUIDField(allow_null=True)
    tool_name = serializers.CharField()
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)


class ChainRunAnswer(serializers.Serializer[Any]):
    run_id = serializers.UUIDField(help_text="The id of its own execution.")
    chain = serializers.CharField()
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    steps = RunStepAnswer(many=True)
    execution = ExecutionAnswer()


RUN = {200: ChainRunAnswer, 202: ChainRunAnswer}


class ChainView(ConditionalView):
    volatile = frozenset({"findings", "warnings"})
    derived = frozenset({"effective_isolation"})

    def representation(self, name: str) -> Representation:
        _find_chain(self, name)
        snapshot = self.current_snapshot()
        return Representation(chain_document(tool_here(snapshot.tools[name], snapshot)))


class ChainList(ChainView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES
    parser_classes = [StrictJSONParser, YamlParser]

    @extend_schema(
        operation_id="list_chains",
        parameters=[*REQUEST, BY_NAME, *PAGING_PARAMETERS],
        responses=ChainPage,
    )
    def get(self, request: Request) -> Response:
        """The chains that the caller may run in this request."""
        asked, snapshot = self.effective_request(), self.snapshot
        warnings = self.check_requested_groups(asked, snapshot)
        usable = usable_tools(self.caller, asked, snapshot)
        chains = [tool for tool in usable if tool.definition.type == ToolType.CHAIN]
        page = paginate_tools(self.request, chains)
        page["results"] = [chain_document(tool_here(tool, snapshot)) for tool in page["results"]]
        return Response(page | {"warnings": warnings})

    @extend_schema(
        operation_id="create_chain",
        request={"application/json": ChainBody, "application/yaml": ChainBody},
        responses={201: ChainBody},
    )
    def post(self, request: Request) -> Response:
        """Write a chain, as JSON or as YAML. The tools that it names are checked."""
        self.require("add_tool")
        definition = chain_definition(self.json_body())
        with _chain_field_errors():
            tool = actions.register_tool(
                organization=self.organization, definition=definition, by=self.actor
            )
        headers = {"Location": f"/api/v1/chains/{tool.name}"}
        return self.resource_response(
            _saved_chain(self, tool.name), status.HTTP_201_CREATED, headers
        )


class ChainDetail(ChainView):
    narrowable = True
    scope = Scope.CATALOG
    proof = by_method(put=Proof.NOT_NEEDED, delete=Proof.NEEDED)
    most_values = MAX_VALUES
    parser_classes = [StrictJSONParser, YamlParser]

    @extend_schema(
        operation_id="get_chain",
        parameters=[IN_SESSION],
        responses=ChainBody,
    )
    def get(self, request: Request, name: str) -> Response:
        snapshot = self.snapshot
        return self.resource_response(
            Representation(chain_document(tool_here(_find_visible_chain(self, name), snapshot)))
        )

    @extend_schema(
        operation_id="replace_chain",
        request={"application/json": ChainBody, "application/yaml": ChainBody},
        responses=ChainBody,
    )
    @conditional("change_tool", row="tool")
    def put(self, request: Request, name: str) -> Response:
        """A new version. Running executions keep their version."""
        tool = actions.changing(_find_chain(self, name))
        check_current(tool)
        definition = chain_definition(self.json_body())
        with _chain_field_errors():
            tool = actions.update_tool(tool=tool, definition=definition, by=self.actor)
        self.require("change_tool", tool=tool.name)  # a narrowed token cannot move it elsewhere
        return self.resource_response(_saved_chain(self, name))

    @extend_schema(operation_id="delete_chain", responses={204: None})
    @conditional("delete_tool", row="tool")
    def delete(self, request: Request, name: str) -> Response:
        actions.delete_tool(tool=_find_chain(self, name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ChainExecute(CallerView):
    keying = Keying.EXECUTION
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES
    scope = Scope.EXECUTE

    @extend_schema(operation_id="execute_chain", request=ToolCallBody, responses={**RUN, 429: None})
    def post(self, request: Request, name: str) -> Response:
        """Run it; the answer waits up to `wait_s` seconds for its end."""
        wanted = self.body(ToolCallBody)
        if wanted.get("tool_name", name) != name:
            raise Malformed("tool_name names another chain than the address does.")
        found = self.snapshot.tool(name)
        if found is not None and found.definition.type != ToolType.CHAIN:
            raise NotFound(f"There is no chain {name[:128]!r}.", code="chain_not_found")
        call = build_call(wanted | {"tool_name": name}, idempotency_key(request))
        return _run_response(execute_call(self, call, wanted))


class ChainRehearsal(CallerView):
    keying = Keying.IGNORED
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES
    scope = Scope.EXECUTE

    @extend_schema(
        operation_id="rehearse_chain",
        request=RehearsalBody,
        responses=RehearsalAnswer,
    )
    def post(self, request: Request, name: str) -> Response:
        """A dry run: nothing is called."""
        tool = _find_visible_chain(self, name)
        wanted = self.body(RehearsalBody)
        found = dry_run(
            tool,
            wanted["parameters"],
            caller=self.caller,
            asked=EffectiveRequest.from_options(wanted["group"], wanted["state"]),
            snapshot=self.snapshot,
        )
        return Response(found)


class ChainRun(CallerView):
    @extend_schema(
        operation_id="get_chain_run",
        responses=RUN,
        parameters=[WAIT],
    )
    def get(self, request: Request, run_id: UUID) -> Response:
        """A run with the calls of its steps, in the order in which they were made."""
        return _run_response(
            wait_for_execution(self.caller, request, chains.find_chain_run(self.caller, run_id))
        )


def _saved_chain(view: CallerView, name: str) -> Representation:
    """The current version, with warnings of what may not fit; the calls themselves validate it."""
    shape = saved_tool(view, name).shape
    found = doubts_about(view.organization, view.current_snapshot().tools[name].definition.raw)
    warnings = [{"field": one.place, "message": one.message} for one in found]
    return Representation(chain_document(shape) | {"warnings": warnings})


def _run_response(execution: Execution) -> Response:
    held = load_confirmations([execution])
    body = {
        "run_id": str(execution.pk),
        "chain": execution.tool_name,
        "status": execution.stage,
        "steps": [
            {
                "place": one.place,
                "execution_id": str(one.id) if one.id else None,
                "tool_name": one.tool_name,
                "status": one.status,
                "error_code": one.error_code or None,
                "error_message": one.error_message or None,
            }
            for one in chains.calls_of_run(execution)
        ],
        "execution": execution_shape(execution, held.get(execution.pk)),
    }
    if execution.is_final:
        return Response(body)
    return Response(body, 202, headers={"Location": f"/api/v1/chain-runs/{execution.pk}"})


def _find_visible_chain(view: CallerView, name: str) -> CatalogTool:
    tool = visible_tool(view.caller, view.snapshot, name)
    if tool.definition.type != ToolType.CHAIN:
        raise NotFound(f"There is no chain {name[:128]!r}.", code="chain_not_found")
    return tool


def _find_chain(view: CallerView, name: str) -> Tool:
    tool = actions.find_tool(view.organization, name)
    if tool.type != ToolType.CHAIN:
        raise NotFound(f"There is no chain {name[:128]!r}.", code="chain_not_found")
    return tool


@contextmanager
def _chain_field_errors() -> Iterator[None]:
    """Errors name fields of the chain document that the client sent."""
    try:
        yield
    except InvalidDefinition as error:
        for flaw in error.details.get("errors", []):
            flaw["field"] = chain_field(flaw["field"])
        raise
