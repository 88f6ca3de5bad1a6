"""Admission: may this call be made? Every step does one thing or raises.

Read `ADMISSION` from left to right and you have read the first half of the road (specification S3,
3; ruling 9); `ACCEPTANCE` goes on from there. Nothing is written here but the count of the rate
limit: refusals are recorded by the pipeline.
"""

from collections.abc import Callable
from typing import Any

from tools.authorization import accountability, request_records
from tools.definitions.schemas.json_schemas import SchemaFlaw
from tools.definitions.values import strict_json
from tools.definitions.vocabulary import ArgumentValidation
from tools.errors import InvalidCall, Malformed, NotFound, Refused, Shed
from tools.execution import references, sessions
from tools.execution.context import Admission
from tools.execution.running import check_delivery
from tools.limits import fan_out, pressure, ratelimits
from tools.policy import gates, license_gates
from tools.policy.availability import AVAILABILITY
from tools.policy.license_gates import LICENSE
from tools.policy.permissions import PERMISSION

MOST_DEPTH = 4


def resolve(admission: Admission) -> None:
    admission.tool = admission.snapshot.tool(admission.call.tool_name)
    if admission.tool is None:
        raise NotFound(
            f"There is no tool {admission.call.tool_name[:128]!r}. GET /api/v1/tools lists yours.",
            code="tool_not_found",
        )


def nested(admission: Admission) -> None:
    """Calls within calls end somewhere."""
    parent = admission.call.parent
    if parent is not None and parent.depth > MOST_DEPTH:
        raise Refused(
            f"Calls may stand at most {MOST_DEPTH} deep in each other.",
            code="nested_too_deep",
            gate="nesting",
        )


def shed_load(admission: Admission) -> None:
    """Before anything is asked of the database. An answer that is known takes nobody's place."""
    try:
        admission.arrival = pressure.HERE.enter(admission.caller)
    except Shed as refusal:
        if admission.resolved.definition.cache_ttl_s is None:
            raise
        admission.shed = refusal


def limit_fan_out(admission: Admission) -> None:
    """Calls that make calls are counted apart: they take no worker while they wait for theirs."""
    if admission.resolved.definition.composite:
        parent = admission.call.parent
        fan_out.check(admission.caller, parent.depth if parent else 0)


def accountable(admission: Admission) -> None:
    accountability.check_lately(admission.caller.organization)


def enter_session(admission: Admission) -> None:
    """Inside a session the server's groups and state are asked about (ruling 5)."""
    if admission.call.session is not None:
        sessions.enter(admission)


def available(admission: Admission) -> None:
    """Groups and state, as specification S1 has them; never more than was granted."""
    request_records.count(admission.asked, admission.snapshot)
    admission.warnings += gates.check_groups(admission.caller, admission.asked, admission.snapshot)
    gates.authorize(admission.question, AVAILABILITY)
    check_delivery(admission.resolved.definition)


def permitted(admission: Admission) -> None:
    gates.authorize(admission.question, PERMISSION)


def licensed(admission: Admission) -> None:
    gates.authorize(admission.question, LICENSE)
    admission.warnings += license_gates.warnings(admission.snapshot)


def limit_rate(admission: Admission) -> None:
    admission.rate = ratelimits.count(admission.caller, admission.resolved, admission.snapshot)


def validate_arguments(admission: Admission) -> None:
    """Held against the tool's schema in the tool's mode (ruling 13)."""
    definition, parameters = admission.resolved.definition, admission.parameters
    mode = definition.raw["argument_validation"]
    if mode == ArgumentValidation.OFF:
        return
    refers_to = admission.refers_to
    flaws = admission.resolved.input_validator.flaws(parameters, masked=bool(refers_to))
    if flaws and mode == ArgumentValidation.ENFORCE:
        places = ", ".join(sorted({flaw.place for flaw in flaws}))
        raise InvalidCall(
            f"The parameters do not fit the tool {definition.name}; see details.errors ({places}).",
            gate="validate_arguments",
            errors=[_error(flaw, refers_to) for flaw in flaws],
        )
    admission.warnings += [f"{flaw.place}: {flaw.message}" for flaw in flaws]


def _error(flaw: SchemaFlaw, refers_to: list[dict[str, Any]]) -> dict[str, Any]:
    """With the reference whose value does not fit, where it is one's."""
    source = references.source_of(flaw.place, refers_to)
    if source is None:
        return flaw.as_dict()
    pointed = {"$result": source["execution_id"], "path": source["path"]}
    return flaw.as_dict() | {"reference": pointed}


def check_json(admission: Admission) -> None:
    """Parameters that came by another way than our JSON parser meet the same bounds."""
    try:
        strict_json.check(admission.call.parameters)
    except strict_json.BadJson as error:
        raise Malformed(f"The parameters cannot be used: {error}.") from None


Step = Callable[[Admission], None]
ADMISSION: tuple[Step, ...] = (
    resolve,
    nested,
    accountable,
    shed_load,
    limit_fan_out,
    enter_session,
    available,
    permitted,
    licensed,
    limit_rate,
    check_json,
    references.resolve_references,
    validate_arguments,
)
