"""Where an output lies: in its execution's row, or, where it is large, outside of it by its digest.

It is written once, in the transaction of its end, and read by callers that may read the execution.
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
CUT = "… "
_REST = "\n" + CUT + "{} more characters; the whole output: {}"


def observation_of(
    output: Any, definition: ToolDefinition, execution_id: UUID, upstream_text: str = ""
) -> str:
    """The output as text for a model: as the definition's template has it, else the text of
    the upstream itself, else a text as it is, anything else as JSON without the bytes of images.
    Cut with a marker that says where the rest is. A definition that selects or redacts decides
    what is read of an upstream: then its text is left out."""
    transform = definition.transform
    text = _templated(output, transform.observation)
    if text is None:
        own = bool(transform.path or transform.redacted)
        text = upstream_text if upstream_text and not own else _plain(output, execution_id)
    if len(text) <= MAX_OBSERVATION:
        return text
    rest = _REST.format(len(text) - MAX_OBSERVATION, place_of(execution_id))
    return f"{text[:MAX_OBSERVATION]}{rest}"


def place_of(execution_id: UUID | None) -> str:
    return f"GET /api/v1/executions/{execution_id}/output"


def _plain(output: Any, execution_id: UUID) -> str:
    if isinstance(output, str):
        return output
    place = place_of(execution_id)
    if call_results.is_content_list(output):
        return call_results.content_as_text(output, place)
    return json.dumps(call_results.without_bytes(output, place), ensure_ascii=False)


def _templated(output: Any, template: str) -> str | None:
    """None also where the output does not fit the template: a reader then gets it as it is."""
    if not template:
        return None
    try:
        return templates.render_template(template, {"output": output})
    except templates.CannotRender:
        return None


JSON, TEXT = "application/json", "text/plain; charset=utf-8"


NO_OUTPUT = PackedOutput(None, None)


class HasOutput(Protocol):
    """An execution, or as much of one as says where its output lies."""

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
class Content:
    """An output as it is streamed: a text as it is, anything else as JSON."""

    organization: UUID
    digest: str
    type: str
    size: int
    inline: bytes | None

    def piece(self, start: int, length: int) -> bytes:
        """Raises `Gone` where its time ran out while it was read."""
        if self.inline is not None:
            return self.inline[start : start + length]
        found = StoredOutput.objects.piece(self.organization, self.digest, start, length)
        if found is None:
            raise Gone("The output has expired.", code="output_expired")
        return found


def pack_output(output: Any) -> PackedOutput:
    as_json = json.dumps(output, ensure_ascii=False).encode()
    if len(as_json) <= settings.OUTPUT_INLINE_BYTES:
        return PackedOutput(output, len(as_json))
    kind, content = _written(output, as_json)
    return PackedOutput(None, len(as_json), _digest(content), kind, content)


def size_of(value: Any) -> int:
    """Bytes of it as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def store_output(organization: UUID, packed: PackedOutput) -> None:
    """In the transaction of the end that names it."""
    if packed.content:
        StoredOutput.objects.keep(organization, packed.digest, packed.content)


def load_output(execution: HasOutput) -> Any:
    """The output wherever it lies. Raises `Gone`."""
    if execution.output_expired_at is not None:
        raise expired(execution)
    if not execution.output_digest:
        return execution.output
    found = content_of(execution)
    content = found.piece(0, found.size)
    return content.decode() if found.type == TEXT else json.loads(content)


def content_of(execution: HasOutput) -> Content:
    """Raises `Conflict` while the call is not over, `NotFound` where it gave nothing, `Gone`."""
    _check_there(execution)
    place = execution.organization_id
    if not execution.output_digest:
        as_json = json.dumps(execution.output, ensure_ascii=False).encode()
        kind, content = _written(execution.output, as_json)
        return Content(place, _digest(content), kind, len(content), content)
    rows = StoredOutput.objects.filter(organization=place, digest=execution.output_digest)
    size = rows.values_list("size", flat=True).first()
    if size is None:  # between our reading of the two
        raise expired(execution)
    return Content(place, execution.output_digest, execution.output_type, size, None)


def expired(execution: HasOutput) -> Gone:
    at = execution.output_expired_at
    return Gone(
        "The output has expired: its organization keeps none for longer. Call the tool again.",
        code="output_expired",
        **({"expired_at": at.isoformat().replace("+00:00", "Z")} if at else {}),
    )


def _check_there(execution: HasOutput) -> None:
    if not execution.is_final:
        raise Conflict("The execution is not over yet.", code="execution_not_over")
    if execution.output_expired_at is not None:
        raise expired(execution)
    if execution.status != Status.SUCCESS:
        raise NotFound(
            "The execution did not succeed and has no output; error_code says why.",
            code="output_not_found",
        )


def _written(output: Any, as_json: bytes) -> tuple[str, bytes]:
    return (TEXT, output.encode()) if isinstance(output, str) else (JSON, as_json)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


_MOST_TEXT = 20_000
_MOST_ITEMS = 1_000
_JSON = ("{", "[")
_REFERENCE = re.compile(r"\[[^{}\"]*\]")  # to an image, a link: no JSON that was cut
_RECEIVED = frozenset({"answer", "data"})  # in `error_details`: values, or their text, cut
FIELDS = ("parameters", "output", "observation", "error_message", "error_details", "warnings")


def redacted(execution: Execution) -> dict[str, Any]:
    """By the names of the fields: what went in, and all that came back in words or values."""
    redactor, definition = _redactor(execution), ToolDefinition(execution.tool_version.definition)
    sensitive = definition.sensitive
    values = {name: getattr(execution, name) for name in FIELDS}
    values["parameters"] = execution.asked  # what stands for another's output may be secret there
    said = {name: redactor.clean(value, sensitive) for name, value in values.items()}
    for name in _RECEIVED & values["error_details"].keys():
        received = values["error_details"][name]
        if isinstance(received, str):
            said["error_details"][name] = _observation(received, redactor, sensitive)
    if definition.transform.observation:
        said["observation"] = _rendered(execution, definition, said["output"])
    else:
        said["observation"] = _observation(execution.observation, redactor, sensitive)
    return said


def _rendered(execution: Execution, definition: ToolDefinition, output: Any) -> str:
    """Made again from what is left of the output: secrets in a text cannot be recognized. Of one
    that lies apart nothing is left here."""
    if not execution.observation or execution.output_digest:
        return ""
    return observation_of(output, definition, execution.pk)


def _observation(text: str, redactor: Redactor, sensitive: frozenset[str]) -> str:
    """In JSON the names of members tell secrets; what was cut tells nothing, and is left out. It
    may be the whole, or a line behind the text of an upstream."""
    whole = _as_values(text, redactor, sensitive)
    if whole is not None:
        return whole
    lines = text.split("\n")
    found = [_as_values(line, redactor, sensitive) for line in lines]
    if text.startswith(_JSON) and found[0] is None and not _REFERENCE.fullmatch(lines[0]):
        return ""
    if lines[-1].startswith(CUT) and lines[-2].startswith(_JSON) and found[-2] is None:
        del lines[-2], found[-2]
    if all(line is None for line in found):
        return str(redactor.clean("\n".join(lines)))
    return "\n".join(
        str(redactor.clean(line)) if values is None else values
        for line, values in zip(lines, found, strict=True)
    )


def _as_values(text: str, redactor: Redactor, sensitive: frozenset[str]) -> str | None:
    """None where it is no JSON of members or items."""
    if not text.startswith(_JSON):
        return None
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return json.dumps(redactor.clean(values, sensitive), ensure_ascii=False)


def redacted_message(event: ExecutionEvent) -> str:
    """What a timeline says of it."""
    said: str = _redactor(event.execution).clean(event.message)
    return said


def _redactor(execution: Execution) -> Redactor:
    return redactor_of(execution.organization.slug).with_room(_MOST_TEXT, _MOST_ITEMS)


def readable_executions(caller: Caller) -> ExecutionQuerySet:
    """An agent its own, a person what is granted. A token for some tools reads the calls of these,
    and the batches that it made itself by their door, which asks for no grant of their tool.

    Also what a reference may point at.
    """
    here = Execution.objects.filter(organization_id=caller.organization_id)
    if caller.token_tools is not None:
        made_here = Q(options__at_its_door=True, token_id=caller.token_id)
        here = here.filter(Q(tool_name__in=caller.token_tools) | made_here)
    return here if may(caller, "view_execution") else here.filter(user_id=caller.user_id)


def reads_all_executions(caller: Caller) -> bool:
    """Whether `readable` is all that its organization has."""
    return caller.token_tools is None and may(caller, "view_execution")


MOST = 32  # references of one call, or of one input of a batch
MOST_SOURCES = 8  # executions they point into
MOST_OF_BATCH = 1_000  # references of all its inputs together
MOST_SOURCE_BYTES = 16 * 1024 * 1024  # of their outputs together, which are read to find the place
MOST_BYTES = 4 * 1024 * 1024  # of all that is put into the parameters
GATE = "resolve_references"
_UNKNOWN = "points at no execution of yours"
_COLUMNS = (
    "id", "organization_id", "status", "output", "output_bytes", "output_digest", "output_type",
    "output_expired_at", "completed_at",
)  # fmt: skip


def resolve_references(admission: Admission) -> None:
    """Put each value in the place of its reference. Raises `InvalidCall`, which names the place."""
    asked = [] if admission.call.plain else _read(admission)
    if not asked:
        return
    sources = _sources(admission, asked)
    room, parameters = MOST_BYTES, admission.call.parameters
    outputs_of: dict[UUID, Any] = {}
    for one in asked:
        if one.execution_id not in outputs_of:
            outputs_of[one.execution_id] = _output(one, sources[one.execution_id])
        value = _value(one, outputs_of[one.execution_id])
        size = size_of(value)
        room -= size
        if room < 0:
            raise _refused(one, f"makes the parameters larger than {MOST_BYTES} bytes", "large")
        parameters = references.replace_at(parameters, one.place, value)
        admission.refers_to.append(_written_text(one, size))
    _check_json(asked, parameters)
    admission.parameters = parameters


def check_references(performance: Performance) -> None:
    """At the moment of use: who may not read what a reference stood for may not have it used."""
    pointed = {one["execution_id"] for one in performance.execution.refers_to}
    if performance.result is not None or not pointed:
        return
    if readable_executions(performance.caller).filter(pk__in=pointed).count() < len(pointed):
        performance.result = Result(
            Status.PERMISSION_DENIED,
            error_code="reference_not_found",
            error_message="A reference points at an execution that the caller may not read now.",
        )


def _read(admission: Admission) -> list[OutputReference]:
    read: list[OutputReference] = []
    counted: Counter[references.ParameterPlace] = Counter()
    for place, raw in references.find_references(admission.call.parameters):
        part = _part(admission, place)
        counted[part] += 1
        for count, most in ((counted[part], MOST), (len(read) + 1, MOST_OF_BATCH)):
            if count > most:
                raise _wrong(place, f"is one of more than {most} references", "reference_limit")
        try:
            read.append(references.parse_reference(place, raw))
        except BadReference as error:
            raise _wrong(place, f"is no reference: {error}", "reference_invalid") from None
    return read


def _part(admission: Admission, place: references.ParameterPlace) -> references.ParameterPlace:
    """What the limits are of: an input of a batch, for it becomes a call; else the call."""
    batch = admission.resolved.definition.entry_point == RUN_BATCH
    return place[:2] if batch and place[:1] == ("inputs",) else ()


def _check_sources(admission: Admission, asked: list[OutputReference]) -> None:
    sources = {(_part(admission, one.place), one.execution_id): one for one in asked}
    counted: Counter[references.ParameterPlace] = Counter()
    for (part, _), one in sources.items():
        counted[part] += 1
        if counted[part] > MOST_SOURCES:
            message = f"is one of more than {MOST_SOURCES} executions that references point at"
            raise _refused(one, message, "limit")


def _sources(admission: Admission, asked: list[OutputReference]) -> dict[UUID, Execution]:
    """All of them, and each good: nothing of their outputs has been read before that is known."""
    _check_sources(admission, asked)
    wanted = {one.execution_id for one in asked}
    rows = readable_executions(admission.caller).filter(pk__in=wanted)
    states = {row.pk: row for row in rows.only(*(set(_COLUMNS) - {"output"}))}
    for one in asked:
        _check_state(one, states.get(one.execution_id))
    if sum(row.output_bytes or 0 for row in states.values()) > MOST_SOURCE_BYTES:
        message = f"points into outputs of more than {MOST_SOURCE_BYTES} bytes"
        raise _refused(asked[-1], message, "large")
    return {row.pk: row for row in rows.only(*_COLUMNS)}


def _check_state(one: OutputReference, source: Execution | None) -> None:
    """What is another's and what is not there are answered alike."""
    if source is None:
        raise _refused(one, _UNKNOWN, "not_found")
    if not source.is_final:
        raise _refused(one, "points at an execution that is not over", "not_over")
    if source.status != Status.SUCCESS:
        raise _refused(one, "points at an execution that did not succeed", "failed")
    if source.output_expired_at is not None:
        raise _refused(one, "points at an output that has expired", "expired")


def _output(one: OutputReference, source: Execution) -> Any:
    try:
        return load_output(source)
    except Gone:
        raise _refused(one, "points at an output that has expired", "expired") from None


def _value(one: OutputReference, output: Any) -> Any:
    """It is data: what looks like a reference in it is none, and is not passed on."""
    try:
        value = references.output_at_path(output, one.path)
    except BadReference as error:
        raise _refused(one, f"cannot be resolved: {error}", "path") from None
    if next(references.find_references(value), None) is not None:
        raise _refused(one, "stands for a value that holds a reference itself", "nested")
    return value


def _check_json(asked: list[OutputReference], parameters: Any) -> None:
    try:
        strict_json.check(parameters)
    except strict_json.BadJson as error:
        message = f"makes parameters that cannot be used: {error}"
        raise _refused(asked[-1], message, "large") from None


def _written_text(one: OutputReference, size: int) -> dict[str, Any]:
    return {
        "place": one.where,
        "execution_id": str(one.execution_id),
        "path": one.path,
        "bytes": size,
    }


def _refused(one: OutputReference, message: str, code: str) -> InvalidCall:
    pointed = {"$result": str(one.execution_id), "path": one.path}
    said = f"{message} ({one.path} of {one.execution_id})"
    return _wrong(one.place, said, f"reference_{code}", pointed)


def _wrong(
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
        gate=GATE,
        errors=[error | ({"reference": reference} if reference else {})],
    )
