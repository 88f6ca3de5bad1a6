"""Outputs of executions: stored in the execution's row, or, if large, outside of it by digest;
observations, redaction, and references to outputs in parameters.

An output is written once, in the transaction that ends the execution, and read by callers that may
read the execution.
"""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from audit.actions import redactor_of
from audit.redaction import Redactor
from tools.accounts.user_permissions import may
from tools.definitions import references
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.mcp import call_results
from tools.definitions.references import BadReference, OutputReference
from tools.definitions.results import Status
from tools.definitions.texts import templates
from tools.definitions.tool import ToolDefinition
from tools.definitions.values import strict_json
from tools.definitions.values.json_pointers import format_pointer
from tools.errors import Conflict, Gone, InvalidCall, NotFound
from tools.execution.call import Admission, PackedOutput, Performance, Result
from tools.models import Execution, ExecutionEvent, StoredOutput
from tools.models.execution_queryset import ExecutionQuerySet

MAX_OBSERVATION = 20_000
CUT_MARKER = "… "
_REST = "\n" + CUT_MARKER + "{} more characters; the whole output: {}"


def observation_of(
    output: Any, definition: ToolDefinition, execution_id: UUID, upstream_text: str = ""
) -> str:
    """The output as text for a model: by the definition's template, else the upstream's text, else
    a text as it is, anything else as JSON without the bytes of images.

    A long one is cut, with a marker that names the address of the output. If the definition selects
    or redacts, the upstream's text is not used.
    """
    transform = definition.transform
    text = _render_template(output, transform.observation)
    if text is None:
        own = bool(transform.path or transform.redacted)
        text = upstream_text if upstream_text and not own else _plain_text(output, execution_id)
    if len(text) <= MAX_OBSERVATION:
        return text
    rest = _REST.format(len(text) - MAX_OBSERVATION, output_address(execution_id))
    return f"{text[:MAX_OBSERVATION]}{rest}"


def output_address(execution_id: UUID | None) -> str:
    return f"GET /api/v1/executions/{execution_id}/output"


def _plain_text(output: Any, execution_id: UUID) -> str:
    if isinstance(output, str):
        return output
    place = output_address(execution_id)
    if call_results.is_content_list(output):
        return call_results.content_as_text(output, place)
    return json.dumps(call_results.without_bytes(output, place), ensure_ascii=False)


def _render_template(output: Any, template: str) -> str | None:
    """None also if the output does not fit the template: then it is not rendered."""
    if not template:
        return None
    try:
        return templates.render_template(template, {"output": output})
    except templates.CannotRender:
        return None


JSON, TEXT = "application/json", "text/plain; charset=utf-8"


NO_OUTPUT = PackedOutput(None, None)


class HasOutput(Protocol):
    """An execution, or its columns about the output."""

    @property
    def organization_id(self) -> UUID: ...
    @property
    def status(self) -> str: ...
    @property
    def is_final(self) -> bool: ...
    @property
    def output(self) -> Any: ...
    @property
    def output_digest(self) -> str: ...
    @property
    def output_type(self) -> str: ...
    @property
    def output_expired_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class OutputContent:
    """An output for streaming: a text as it is, anything else as JSON."""

    organization: UUID
    digest: str
    type: str
    size: int
    inline: bytes | None

    def piece(self, start: int, length: int) -> bytes:
        """Raises `Gone` if it expired during the reading."""
        if self.inline is not None:
            return self.inline[start : start + length]
        piece = StoredOutput.objects.piece(self.organization, self.digest, start, length)
        if piece is None:
            raise Gone("The output has expired.", code="output_expired")
        return piece


def pack_output(output: Any) -> PackedOutput:
    as_json = json.dumps(output, ensure_ascii=False).encode()
    if len(as_json) <= settings.OUTPUT_INLINE_BYTES:
        return PackedOutput(output, len(as_json))
    kind, content = _encode_output(output, as_json)
    return PackedOutput(None, len(as_json), _digest(content), kind, content)


def size_of(value: Any) -> int:
    """The size of a value as JSON, in bytes."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def store_output(organization: UUID, packed: PackedOutput) -> None:
    """Stores a large output, in the transaction that ends its execution."""
    if packed.content:
        StoredOutput.objects.keep(organization, packed.digest, packed.content)


def load_output(execution: HasOutput) -> Any:
    """The output, wherever it is stored. Raises `Gone`."""
    if execution.output_expired_at is not None:
        raise expired_error(execution)
    if not execution.output_digest:
        return execution.output
    content = load_content(execution)
    raw = content.piece(0, content.size)
    return raw.decode() if content.type == TEXT else json.loads(raw)


def load_content(execution: HasOutput) -> OutputContent:
    """Raises `Conflict` before the end of the call, `NotFound` if it failed, `Gone`."""
    _check_has_output(execution)
    organization = execution.organization_id
    if not execution.output_digest:
        as_json = json.dumps(execution.output, ensure_ascii=False).encode()
        kind, content = _encode_output(execution.output, as_json)
        return OutputContent(organization, _digest(content), kind, len(content), content)
    rows = StoredOutput.objects.filter(organization=organization, digest=execution.output_digest)
    size = rows.values_list("size", flat=True).first()
    if size is None:  # it expired after the execution was read
        raise expired_error(execution)
    return OutputContent(organization, execution.output_digest, execution.output_type, size, None)


def expired_error(execution: HasOutput) -> Gone:
    expired_at = execution.output_expired_at
    return Gone(
        "The output has expired: its organization keeps none for longer. Call the tool again.",
        code="output_expired",
        **({"expired_at": expired_at.isoformat().replace("+00:00", "Z")} if expired_at else {}),
    )


def _check_has_output(execution: HasOutput) -> None:
    if not execution.is_final:
        raise Conflict("The execution is not over yet.", code="execution_not_over")
    if execution.output_expired_at is not None:
        raise expired_error(execution)
    if execution.status != Status.SUCCESS:
        raise NotFound(
            "The execution did not succeed and has no output; error_code says why.",
            code="output_not_found",
        )


def _encode_output(output: Any, as_json: bytes) -> tuple[str, bytes]:
    return (TEXT, output.encode()) if isinstance(output, str) else (JSON, as_json)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


_MOST_TEXT = 20_000
_MOST_ITEMS = 1_000
_JSON = ("{", "[")
_REFERENCE = re.compile(r"\[[^{}\"]*\]")  # to an image or a link, not JSON that was cut
# Of `error_details`: values, or their shortened text.
_UPSTREAM_DETAILS = frozenset({"answer", "data"})
REDACTED_FIELDS = (
    "parameters", "output", "observation", "error_message", "error_details", "warnings",
)  # fmt: skip


def redact_execution(execution: Execution) -> dict[str, Any]:
    """The redacted values of `REDACTED_FIELDS`: the parameters, and all that the call returned."""
    redactor, definition = _redactor(execution), ToolDefinition(execution.tool_version.definition)
    sensitive = definition.sensitive
    values = {name: getattr(execution, name) for name in REDACTED_FIELDS}
    values["parameters"] = execution.asked  # a referenced output may be secret
    fields = {name: redactor.clean(value, sensitive) for name, value in values.items()}
    for name in _UPSTREAM_DETAILS & values["error_details"].keys():
        received = values["error_details"][name]
        if isinstance(received, str):
            fields["error_details"][name] = _redact_observation(received, redactor, sensitive)
    if definition.transform.observation:
        fields["observation"] = _render_redacted(execution, definition, fields["output"])
    else:
        fields["observation"] = _redact_observation(execution.observation, redactor, sensitive)
    return fields


def redact_observation(execution: Execution) -> str:
    """The observation alone, without a look at the output: empty where a template renders it."""
    definition = ToolDefinition(execution.tool_version.definition)
    if definition.transform.observation:
        return ""
    return _redact_observation(execution.observation, _redactor(execution), definition.sensitive)


def _render_redacted(execution: Execution, definition: ToolDefinition, output: Any) -> str:
    """Renders the observation again from the redacted output, since secrets in a text cannot be
    recognized. Empty for an output that is stored outside of the row."""
    if not execution.observation or execution.output_digest:
        return ""
    return observation_of(output, definition, execution.pk)


def _redact_observation(text: str, redactor: Redactor, sensitive: frozenset[str]) -> str:
    """Redacts an observation: JSON by the names of its members, also as one line of a text.

    JSON that was cut cannot be read, and is left out.
    """
    whole = _redact_json(text, redactor, sensitive)
    if whole is not None:
        return whole
    lines = text.split("\n")
    found = [_redact_json(line, redactor, sensitive) for line in lines]
    if text.startswith(_JSON) and found[0] is None and not _REFERENCE.fullmatch(lines[0]):
        return ""
    if lines[-1].startswith(CUT_MARKER) and lines[-2].startswith(_JSON) and found[-2] is None:
        del lines[-2], found[-2]
    if all(line is None for line in found):
        return str(redactor.clean("\n".join(lines)))
    return "\n".join(
        str(redactor.clean(line)) if values is None else values
        for line, values in zip(lines, found, strict=True)
    )


def _redact_json(text: str, redactor: Redactor, sensitive: frozenset[str]) -> str | None:
    """None if the text is not a JSON object or array."""
    if not text.startswith(_JSON):
        return None
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return json.dumps(redactor.clean(values, sensitive), ensure_ascii=False)


def redact_message(event: ExecutionEvent) -> str:
    """The message of an event, redacted."""
    message: str = _redactor(event.execution).clean(event.message)
    return message


def _redactor(execution: Execution) -> Redactor:
    return redactor_of(execution.organization.slug).with_room(_MOST_TEXT, _MOST_ITEMS)


def readable_executions(caller: Caller) -> ExecutionQuerySet:
    """The executions that a caller may read: an agent its own, a user what is granted.

    A token for some tools reads the calls of these tools, and the batches that it sent to the
    address for batches, which requires no grant of their tool. References can point at the same
    executions.
    """
    rows = Execution.objects.filter(organization_id=caller.organization_id)
    if caller.token_tools is not None:
        own_batches = Q(options__at_its_door=True, token_id=caller.token_id)
        rows = rows.filter(Q(tool_name__in=caller.token_tools) | own_batches)
    return rows if may(caller, "view_execution") else rows.filter(user_id=caller.user_id)


def reads_all_executions(caller: Caller) -> bool:
    """Whether `readable_executions` are all of the organization."""
    return caller.token_tools is None and may(caller, "view_execution")


MOST_REFERENCES = 32  # references of one call, or of one input of a batch
MOST_SOURCES = 8  # executions they point into
MOST_BATCH_REFERENCES = 1_000  # references of all its inputs together
MOST_SOURCE_BYTES = 16 * 1024 * 1024  # of their outputs together
MOST_REFERENCED_BYTES = 4 * 1024 * 1024  # of all values that are inserted
REFERENCE_GATE = "resolve_references"
_UNKNOWN_EXECUTION = "points at no execution of yours"
_SOURCE_COLUMNS = (
    "id", "organization_id", "status", "output", "output_bytes", "output_digest", "output_type",
    "output_expired_at", "completed_at",
)  # fmt: skip


def resolve_references(admission: Admission) -> None:
    """Replaces each reference by its value. Raises `InvalidCall`, which names the place."""
    found = [] if admission.call.plain else _parse_references(admission)
    if not found:
        return
    sources = _load_sources(admission, found)
    free_bytes, parameters = MOST_REFERENCED_BYTES, admission.call.parameters
    outputs_of: dict[UUID, Any] = {}
    for one in found:
        if one.execution_id not in outputs_of:
            outputs_of[one.execution_id] = _load_source_output(one, sources[one.execution_id])
        value = _resolve_value(one, outputs_of[one.execution_id])
        size = size_of(value)
        free_bytes -= size
        if free_bytes < 0:
            raise _reference_error(
                one, f"makes the parameters larger than {MOST_REFERENCED_BYTES} bytes", "large"
            )
        parameters = references.replace_at(parameters, one.place, value)
        admission.refers_to.append(_reference_record(one, size))
    _check_parameters(found, parameters)
    admission.parameters = parameters


def check_references(performance: Performance) -> None:
    """Refuses a claimed call whose caller may no longer read an output that it refers to."""
    sources = {one["execution_id"] for one in performance.execution.refers_to}
    if performance.result is not None or not sources:
        return
    if readable_executions(performance.caller).filter(pk__in=sources).count() < len(sources):
        performance.result = Result(
            Status.PERMISSION_DENIED,
            error_code="reference_not_found",
            error_message="A reference points at an execution that the caller may not read now.",
        )


def _parse_references(admission: Admission) -> list[OutputReference]:
    found: list[OutputReference] = []
    counts: Counter[references.ParameterPlace] = Counter()
    for place, raw in references.find_references(admission.call.parameters):
        scope = _limit_scope(admission, place)
        counts[scope] += 1
        limits = ((counts[scope], MOST_REFERENCES), (len(found) + 1, MOST_BATCH_REFERENCES))
        for count, most in limits:
            if count > most:
                raise _parameter_error(
                    place, f"is one of more than {most} references", "reference_limit"
                )
        try:
            found.append(references.parse_reference(place, raw))
        except BadReference as error:
            raise _parameter_error(
                place, f"is no reference: {error}", "reference_invalid"
            ) from None
    return found


def _limit_scope(
    admission: Admission, place: references.ParameterPlace
) -> references.ParameterPlace:
    """The limits are for each input of a batch, since it becomes a call; else for the call."""
    batch = admission.resolved.definition.entry_point == RUN_BATCH
    return place[:2] if batch and place[:1] == ("inputs",) else ()


def _check_source_count(admission: Admission, found: list[OutputReference]) -> None:
    sources = {(_limit_scope(admission, one.place), one.execution_id): one for one in found}
    counts: Counter[references.ParameterPlace] = Counter()
    for (scope, _), one in sources.items():
        counts[scope] += 1
        if counts[scope] > MOST_SOURCES:
            message = f"is one of more than {MOST_SOURCES} executions that references point at"
            raise _reference_error(one, message, "limit")


def _load_sources(admission: Admission, found: list[OutputReference]) -> dict[UUID, Execution]:
    """The executions that are referred to. All are checked before an output is read."""
    _check_source_count(admission, found)
    wanted = {one.execution_id for one in found}
    rows = readable_executions(admission.caller).filter(pk__in=wanted)
    states = {row.pk: row for row in rows.only(*(set(_SOURCE_COLUMNS) - {"output"}))}
    for one in found:
        _check_source_state(one, states.get(one.execution_id))
    if sum(row.output_bytes or 0 for row in states.values()) > MOST_SOURCE_BYTES:
        message = f"points into outputs of more than {MOST_SOURCE_BYTES} bytes"
        raise _reference_error(found[-1], message, "large")
    return {row.pk: row for row in rows.only(*_SOURCE_COLUMNS)}


def _check_source_state(one: OutputReference, source: Execution | None) -> None:
    """The errors for an unreadable execution and for a missing one are the same."""
    if source is None:
        raise _reference_error(one, _UNKNOWN_EXECUTION, "not_found")
    if not source.is_final:
        raise _reference_error(one, "points at an execution that is not over", "not_over")
    if source.status != Status.SUCCESS:
        raise _reference_error(one, "points at an execution that did not succeed", "failed")
    if source.output_expired_at is not None:
        raise _reference_error(one, "points at an output that has expired", "expired")


def _load_source_output(one: OutputReference, source: Execution) -> Any:
    try:
        return load_output(source)
    except Gone:
        raise _reference_error(one, "points at an output that has expired", "expired") from None


def _resolve_value(one: OutputReference, output: Any) -> Any:
    """The referenced value. It must not contain references itself."""
    try:
        value = references.output_at_path(output, one.path)
    except BadReference as error:
        raise _reference_error(one, f"cannot be resolved: {error}", "path") from None
    if next(references.find_references(value), None) is not None:
        raise _reference_error(one, "stands for a value that holds a reference itself", "nested")
    return value


def _check_parameters(found: list[OutputReference], parameters: Any) -> None:
    try:
        strict_json.check(parameters)
    except strict_json.BadJson as error:
        message = f"makes parameters that cannot be used: {error}"
        raise _reference_error(found[-1], message, "large") from None


def _reference_record(one: OutputReference, size: int) -> dict[str, Any]:
    return {
        "place": one.where,
        "execution_id": str(one.execution_id),
        "path": one.path,
        "bytes": size,
    }


def _reference_error(one: OutputReference, message: str, code: str) -> InvalidCall:
    reference = {"$result": str(one.execution_id), "path": one.path}
    text = f"{message} ({one.path} of {one.execution_id})"
    return _parameter_error(one.place, text, f"reference_{code}", reference)


def _parameter_error(
    place: references.ParameterPlace,
    message: str,
    code: str,
    reference: dict[str, str] | None = None,
) -> InvalidCall:
    where = format_pointer(place)[:500] or "/"
    error = {"place": where, "message": message}
    return InvalidCall(
        f"The parameter at {where} {message}.",
        code=code,
        gate=REFERENCE_GATE,
        errors=[error | ({"reference": reference} if reference else {})],
    )
