"""Admission: may this call be made? Every step does one thing or raises.

Read `ADMISSION` from left to right and you have read the first half of the road (specification S3,
3; ruling 9); `ACCEPTANCE` goes on from there. The steps walk `gates.GATES` by its stages, and read
in between what the next stage needs. Nothing is written here but the count of the rate limit:
refusals are recorded by the pipeline.
"""

from collections.abc import Callable

from tools.authorization import request_records
from tools.authorization.facts import authorize_call
from tools.definitions.values import strict_json
from tools.errors import Malformed, NotFound
from tools.execution import references, sessions
from tools.execution.context import Admission
from tools.licensing.license_coverage import license_warnings
from tools.policy import gates
from tools.policy.gates import Stage
from tools.policy.questions import Gate

SKIPPED = {
    Gate.STANDING: "The caller was authenticated for this request, and is active.",
}


def resolve(admission: Admission) -> None:
    admission.tool = admission.snapshot.tool(admission.call.tool_name)
    if admission.tool is None:
        raise NotFound(
            f"There is no tool {admission.call.tool_name[:128]!r}. GET /api/v1/tools lists yours.",
            code="tool_not_found",
        )


def ask_gates(admission: Admission, *stages: Stage) -> None:
    """Raises the first gate's refusal."""
    checks = gates.select(*stages, skip=SKIPPED)
    admission.warnings += authorize_call(admission.question, checks)


def arrive(admission: Admission) -> None:
    """Load is shed before anything is asked of the database."""
    ask_gates(admission, Stage.ARRIVAL)


def enter_session(admission: Admission) -> None:
    """Inside a session the server's groups and state are asked about (ruling 5)."""
    if admission.call.session is not None:
        sessions.enter(admission)


def authorize(admission: Admission) -> None:
    """Groups and state, as specification S1 has them; never more than was granted."""
    request_records.count_request(admission.asked, admission.snapshot)
    ask_gates(admission, Stage.REQUEST, Stage.ACCESS)
    admission.warnings += license_warnings(admission.snapshot)


def limit_rate(admission: Admission) -> None:
    ask_gates(admission, Stage.RATE)


def check_json(admission: Admission) -> None:
    """Parameters that came by another way than our JSON parser meet the same bounds."""
    try:
        strict_json.check(admission.call.parameters)
    except strict_json.BadJson as error:
        raise Malformed(f"The parameters cannot be used: {error}.") from None


def validate_arguments(admission: Admission) -> None:
    ask_gates(admission, Stage.ARGUMENTS)


Step = Callable[[Admission], None]
ADMISSION: tuple[Step, ...] = (
    resolve,
    arrive,
    enter_session,
    authorize,
    limit_rate,
    check_json,
    references.resolve_references,
    validate_arguments,
)
