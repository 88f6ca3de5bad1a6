"""Admission: may this call be made? Every step does one thing or raises.

Read `ADMISSION` from left to right and you have read the first half of the road (specification S3,
3; ruling 9). Nothing is written here: refusals and accepted calls are recorded by the pipeline.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tools.catalog.registry import CatalogTool, Snapshot, registry
from tools.definitions import strict_json
from tools.definitions.callers import Caller
from tools.definitions.vocabulary import ArgumentValidation
from tools.errors import InvalidCall, Malformed, NotFound, Refused
from tools.execution.call import Call
from tools.policy import authorization
from tools.policy.availability import AVAILABILITY
from tools.policy.decision import Asked, Question
from tools.policy.licensing import LICENSE
from tools.policy.permissions import PERMISSION


@dataclass
class Admission:
    """A call on its way through the gates."""

    caller: Caller
    call: Call
    asked: Asked = field(init=False)
    snapshot: Snapshot = field(init=False)
    tool: CatalogTool | None = None
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked = Asked.of(self.call.group, self.call.state)
        self.snapshot = registry.snapshot(self.caller.organization_id, self.caller.revision)

    @property
    def resolved(self) -> CatalogTool:
        if self.tool is None:
            raise LookupError("the tool has not been resolved yet")
        return self.tool

    @property
    def question(self) -> Question:
        return Question(self.caller, self.resolved, self.asked, self.snapshot)

    @property
    def timeout_s(self) -> float:
        """Options may only tighten: the smaller of the two (ruling 5)."""
        allowed = self.resolved.definition.timeout_s
        return min(allowed, self.call.timeout_s or allowed)


def resolve(admission: Admission) -> None:
    admission.tool = admission.snapshot.tool(admission.call.tool_name)
    if admission.tool is None:
        raise NotFound(
            f"There is no tool {admission.call.tool_name[:128]!r}. GET /api/v1/tools lists yours.",
            code="tool_not_found",
        )
    if admission.call.session is not None:
        raise NotFound("There is no such session.", code="session_not_found")


def available(admission: Admission) -> None:
    """Groups and state, as specification S1 has them; never more than was granted."""
    authorization.count_request(admission.asked, admission.snapshot)
    admission.warnings += authorization.check_groups(
        admission.caller, admission.asked, admission.snapshot
    )
    authorization.authorize(admission.question, AVAILABILITY)


def permitted(admission: Admission) -> None:
    authorization.authorize(admission.question, PERMISSION)


def licensed(admission: Admission) -> None:
    authorization.authorize(admission.question, LICENSE)


def validate_arguments(admission: Admission) -> None:
    """Held against the tool's schema in the tool's mode (ruling 13)."""
    definition, parameters = admission.resolved.definition, admission.call.parameters
    _check_json(parameters)
    mode = definition.raw["argument_validation"]
    if mode == ArgumentValidation.OFF:
        return
    flaws = admission.resolved.input_validator.flaws(parameters)
    if flaws and mode == ArgumentValidation.ENFORCE:
        places = ", ".join(sorted({flaw.place for flaw in flaws}))
        raise InvalidCall(
            f"The parameters do not fit the tool {definition.name}; see details.errors ({places}).",
            gate="validate_arguments",
            errors=[flaw.as_dict() for flaw in flaws],
        )
    admission.warnings += [f"{flaw.place}: {flaw.message}" for flaw in flaws]


def confirmable(admission: Admission) -> None:
    """Until a person can be asked, a call that needs one is refused, never let through."""
    if (
        admission.call.require_confirmation
        or admission.resolved.definition.raw["requires_confirmation"]
    ):
        raise Refused(
            f"The tool {admission.resolved.name} runs only when a person confirms the call, and "
            "this installation has no confirmation queue yet.",
            code="confirmation_unavailable",
            gate="confirmation",
        )


def _check_json(parameters: object) -> None:
    """Parameters that came by another way than our JSON parser meet the same bounds."""
    try:
        strict_json.check(parameters)
    except strict_json.BadJson as error:
        raise Malformed(f"The parameters cannot be used: {error}.") from None


Step = Callable[[Admission], None]
ADMISSION: tuple[Step, ...] = (
    resolve,
    available,
    permitted,
    licensed,
    validate_arguments,
    confirmable,
)
