"""The gates for one call and its caller, before and after those for the tool.

What is counted or reserved is the work of `tools.limits`: these gates read its answer.
"""

from collections.abc import Sequence
from typing import Any

from tools.definitions.schemas.json_schemas import SchemaFlaw
from tools.definitions.texts.names import WILDCARD
from tools.definitions.vocabulary import ArgumentValidation, Delivery
from tools.errors import InvalidCall, Malformed, Refused
from tools.policy import approval_requirements
from tools.policy.questions import Gate, Question, RequestQuestion, Verdict, passed, refused

MOST_DEPTH = 4


def nesting(question: Question) -> Verdict:
    """Calls within calls end somewhere."""
    if question.terms.depth <= MOST_DEPTH:
        return passed(Gate.NESTING)
    reason = f"Calls may stand at most {MOST_DEPTH} deep in each other."
    return Verdict(Gate.NESTING, False, "nested_too_deep", reason)


def accountable(question: RequestQuestion) -> Verdict:
    """A call that could not be proved does not run."""
    halted = question.facts.audit_halted(question.caller.organization)
    return refused(Gate.ACCOUNTABLE, halted) if halted else passed(Gate.ACCOUNTABLE)


def load(question: Question) -> Verdict:
    return question.terms.limits.load(question)


def fan_out(question: Question) -> Verdict:
    return question.terms.limits.fan_out(question)


def is_active(question: RequestQuestion) -> Verdict:
    """Refuses a caller who became inactive after the call was accepted."""
    if question.caller.active:
        return passed(Gate.STANDING)
    reason = "The caller was suspended, or its token revoked, before the call began."
    return Verdict(Gate.STANDING, False, "caller_suspended", reason)


def granted_groups(question: RequestQuestion) -> Verdict:
    """Privileges never come from the request: what is asked for must have been granted (ruling 5).

    Names that no group has are warnings; a strict caller gets `Malformed` for them (ruling 6).
    """
    caller, asked, snapshot = question.caller, question.asked, question.snapshot
    granted = caller.granted_groups
    beyond = frozenset() if WILDCARD in granted else asked.groups - granted
    if beyond:
        names = ", ".join(sorted(beyond))
        refusal = Refused(
            f"The request names groups the caller was not granted: {names}. "
            "Leave them out or ask an administrator.",
            code="group_not_granted",
            gate=Gate.GRANTED_GROUPS.value,
            groups=sorted(beyond),
        )
        return refused(Gate.GRANTED_GROUPS, refusal)
    unknown = sorted(
        name for name in asked.groups if name != WILDCARD and not snapshot.knows_group(name)
    )
    if unknown and caller.strict:
        malformed = Malformed(
            f"There is no group {', '.join(unknown)}.", code="group_unknown", groups=unknown
        )
        return refused(Gate.GRANTED_GROUPS, malformed)
    if not unknown:
        return passed(Gate.GRANTED_GROUPS)
    warnings = tuple(f"There is no group {name}; it was ignored." for name in unknown)
    return Verdict(Gate.GRANTED_GROUPS, True, warnings=warnings)


def delivery(question: Question) -> Verdict:
    """Earlier releases stored transactional tools, which nothing implements."""
    if question.tool.definition.raw["delivery"] != Delivery.TRANSACTIONAL:
        return passed(Gate.DELIVERY)
    reason = (
        "No tool can be transactional yet. Register a version that is idempotent, if it may be"
        " repeated, or else external."
    )
    return Verdict(Gate.DELIVERY, False, "delivery_unsupported", reason)


def rate(question: Question) -> Verdict:
    return question.terms.limits.rate(question)


def arguments(question: Question) -> Verdict:
    """The parameters fit the tool's schema, in the tool's mode (ruling 13)."""
    definition, references = question.tool.definition, question.terms.references
    mode = definition.raw["argument_validation"]
    if mode == ArgumentValidation.OFF:
        return passed(Gate.ARGUMENTS)
    parameters = question.terms.parameters
    flaws = question.tool.input_validator.flaws(parameters, masked=bool(references))
    if flaws and mode == ArgumentValidation.ENFORCE:
        places = ", ".join(sorted({flaw.place for flaw in flaws}))
        invalid = InvalidCall(
            f"The parameters do not fit the tool {definition.name}; see details.errors ({places}).",
            gate=Gate.ARGUMENTS.value,
            errors=[_describe_flaw(flaw, references) for flaw in flaws],
        )
        return refused(Gate.ARGUMENTS, invalid)
    if not flaws:
        return passed(Gate.ARGUMENTS)
    warnings = tuple(f"{flaw.place}: {flaw.message}" for flaw in flaws)
    return Verdict(Gate.ARGUMENTS, True, warnings=warnings)


def _describe_flaw(flaw: SchemaFlaw, references: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """With the reference whose value does not fit, where the value is one's."""
    for one in references:
        if f"{flaw.place}/".startswith(f"{one['place']}/"):
            pointed = {"$result": one["execution_id"], "path": one["path"]}
            return flaw.as_dict() | {"reference": pointed}
    return flaw.as_dict()


def budget(question: Question) -> Verdict:
    return question.terms.limits.budget(question)


def confirmation(question: Question) -> Verdict:
    """A call that needs an approval is not refused: it is held until people have agreed."""
    need = approval_requirements.requirement_of(question, question.terms.options)
    if need is None:
        return passed(Gate.CONFIRMATION)
    people = "two people" if need.approvals > 1 else "a person"
    reason = f"The call waits until {people} agreed. {' '.join(need.reasons)}".strip()
    code = "confirmation_needed"
    return Verdict(Gate.CONFIRMATION, False, code, reason, requirement=need)
