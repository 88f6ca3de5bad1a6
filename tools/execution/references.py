"""Parameters that are what another execution gave back: resolved once, when the call is admitted.

What is resolved is what is checked, confirmed and run. What a reference may stand for: the output
of an execution that the caller may read, that succeeded, and whose output is still kept. Evidence
keeps the reference, not a copy of what it stood for.
"""

from collections import Counter
from typing import Any
from uuid import UUID

from tools.definitions import references
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.references import BadReference, OutputReference
from tools.definitions.results import Status
from tools.definitions.values import strict_json
from tools.definitions.values.json_pointers import format_pointer
from tools.errors import Gone, InvalidCall
from tools.execution import outputs
from tools.execution.context import Admission, Performance, Result
from tools.execution.reading import readable
from tools.models import Execution

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
        size = outputs.size_of(value)
        room -= size
        if room < 0:
            raise _refused(one, f"makes the parameters larger than {MOST_BYTES} bytes", "large")
        parameters = references.replace_at(parameters, one.place, value)
        admission.refers_to.append(_written(one, size))
    _check_json(asked, parameters)
    admission.parameters = parameters


def ask_again(performance: Performance) -> None:
    """At the moment of use: who may not read what a reference stood for may not have it used."""
    pointed = {one["execution_id"] for one in performance.execution.refers_to}
    if performance.result is not None or not pointed:
        return
    if readable(performance.caller).filter(pk__in=pointed).count() < len(pointed):
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
    rows = readable(admission.caller).filter(pk__in=wanted)
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
        return outputs.whole(source)
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


def _written(one: OutputReference, size: int) -> dict[str, Any]:
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
