"""Suggests what would change a gate's refusal: one sentence, from the gate's code and the facts.

Written for its reader: an administrator reads what to do, other users whom to ask, and never the
name of a group or tool that they may not know.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from tools.accounts.grants.grants import permissions_of
from tools.authorization.facts import CURRENT, question_of
from tools.authorization.known_names import drop_unknown_names
from tools.catalog.group_openings import Cause, Closing, in_the_way, openings_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD, join_names
from tools.definitions.values.schedules import next_opening
from tools.definitions.vocabulary import SIGNATURE_INVALID
from tools.models import LicenseTier
from tools.policy import gates
from tools.policy.availability import may_know
from tools.policy.isolation_levels import effective_level
from tools.policy.questions import EffectiveRequest, Gate, Question, Verdict

_MOST_NAMED = 3
_MOST_LOOKED_AT = 200


@dataclass(frozen=True)
class ExplanationReader:
    """The reader of an explanation about `caller`; `everything` is an administrator of the
    catalog."""

    caller: Caller
    snapshot: Snapshot
    everything: bool

    def may_know_group(self, name: str) -> bool:
        granted = self.caller.granted_groups
        return self.everything or WILDCARD in granted or name in granted

    def may_know(self, tool: CatalogTool) -> bool:
        return self.everything or may_know(self.caller, tool, self.snapshot, CURRENT)

    @cached_property
    def tiers(self) -> tuple[LicenseTier, ...]:
        """The smallest first."""
        return tuple(LicenseTier.objects.order_by("rank"))


@dataclass(frozen=True, slots=True)
class RefusalCase:
    """One refusal, and its reader. `question` is None where a whole request is refused."""

    verdict: Verdict
    reader: ExplanationReader
    asked: EffectiveRequest
    question: Question | None = None

    @property
    def tool(self) -> CatalogTool:
        assert self.question is not None
        return self.question.tool

    @property
    def who(self) -> str:
        return self.reader.caller.name


def remedy(case: RefusalCase) -> str:
    """Empty for a gate that passed."""
    return "" if case.verdict.passed else REMEDIES.get(case.verdict.code, _ask)(case)


def _ask(case: RefusalCase) -> str:
    return "Ask an administrator."


def _do(case: RefusalCase, deed: str) -> str:
    """The action, for a user who may do it; otherwise whom to ask."""
    return (
        f"{deed[0].upper()}{deed[1:]}."
        if case.reader.everything
        else f"Ask an administrator to {deed}."
    )


def _plural(word: str, names: Iterable[str]) -> str:
    found = list(names)
    return f"{word}{'' if len(found) == 1 else 's'} {', '.join(found)}"


def _enable(case: RefusalCase) -> str:
    return _do(case, "enable the tool")


def _approve(case: RefusalCase) -> str:
    return _do(case, "approve the tool, which waits for it")


def _lift_quarantine(case: RefusalCase) -> str:
    return _do(case, "read what changed and approve the tool")


def _see_to_it(case: RefusalCase) -> str:
    return _do(case, "look at verify_tools, and restore a version or delete the tool")


def _wait_for_service(case: RefusalCase) -> str:
    return f"Try again later, or {_lower(_do(case, 'approve the tool service, or start it'))}"


def _request_group(case: RefusalCase) -> str:
    """A group that the caller has and did not request comes before one that would have to be
    granted."""
    groups = case.reader.snapshot.groups_of(case.tool)
    granted = case.reader.caller.granted_groups
    held = groups if WILDCARD in granted else groups & granted
    if held:
        return (
            f"Request one of its groups: {join_names(sorted(held), _MOST_NAMED)}."
            if len(held) > 1
            else f"Request the group {min(held)}."
        )
    if WILDCARD in granted:
        return 'It is in no group: request "*".'
    if not groups:
        return _do(case, f'put the tool into a group, or grant {case.who} "*" and request it')
    if not case.reader.everything:
        return "Ask an administrator for a group of this tool."
    one = groups if len(groups) == 1 else [f"one of {join_names(sorted(groups), _MOST_NAMED)}"]
    return f"Grant {case.who} the group {min(one)}, and request it."


def closings(question: Question, reader: ExplanationReader) -> list[Closing]:
    """The closed groups between the request and the tool that the reader may know."""
    closed = openings_of(question.snapshot).closings
    names = in_the_way(question.tool, question.asked.groups, question.snapshot)
    return [closed[name] for name in sorted(names & set(closed)) if reader.may_know_group(name)]


def _wait_for_opening(case: RefusalCase) -> str:
    assert case.question is not None
    found = closings(case.question, case.reader)
    return " ".join(map(_opening, found)) or "Try again later."


def _opening(closing: Closing) -> str:
    group = closing.group
    match closing.cause:
        case Cause.HOURS:
            opens = next_opening(closing.schedule, closing.at, closing.zone)
            return f"{group.name} opens {opens:%A %H:%M} {closing.zone}."
        case Cause.QUEUE:
            return f"{group.name} opens when no call waits longer than {group.max_queue_age_s:g} s."
        case Cause.PROCESSORS:
            return f"{group.name} opens below {group.max_cpu_percent:g} % of the processors."


def _change_state(case: RefusalCase) -> str:
    states = case.tool.definition.states
    if not states:
        return _do(case, "give the tool states in which it is available: now there is none")
    leads = {state: _that_lead_to(state, case) for state in sorted(states)}
    reached = {state: names for state, names in leads.items() if names}
    if not reached:
        listed = join_names(sorted(states), _MOST_NAMED)
        return f"Call it in the state {listed}; no tool at hand leads there."
    state, names = min(reached.items())
    verb = "lead" if len(names) > 1 else "leads"
    return f"Call it in the state {state}; {' and '.join(names)} {verb} there."


def _that_lead_to(state: str, case: RefusalCase) -> list[str]:
    """Tools the caller could call in this request, in some state, that end in `state`."""
    snapshot = case.reader.snapshot
    state = drop_unknown_names(EffectiveRequest(frozenset(), state), snapshot).state
    leading = snapshot.remember(("leading to", state), lambda: _leading(state, snapshot))
    usable = (tool.name for tool in leading if _could_call(tool, case))
    return [name for name, _ in zip(usable, range(_MOST_NAMED), strict=False)]


def _leading(state: str, snapshot: Snapshot) -> tuple[CatalogTool, ...]:
    found = [tool for tool in snapshot.sorted_tools if tool.definition.raw["state"] == state]
    return tuple(found[:_MOST_LOOKED_AT])


def _could_call(tool: CatalogTool, case: RefusalCase) -> bool:
    question = question_of(case.reader.caller, tool, case.asked, case.reader.snapshot)
    verdicts = gates.explain(question)
    return all(verdict.passed for verdict in verdicts if verdict.gate != Gate.STATE)


def _grant_tool(case: RefusalCase) -> str:
    return _do(case, f"grant {case.who} the tool {case.tool.name}")


def _widen_token(case: RefusalCase) -> str:
    return "Use a token that is good for it, or ask an administrator for one."


def _grant_permissions(case: RefusalCase) -> str:
    held = permissions_of(case.reader.caller, case.reader.snapshot)
    lacking = [n for n in case.tool.definition.raw["required_permissions"] if n not in held]
    carrying = [
        group.name
        for group in case.reader.snapshot.groups.values()
        if group.permissions.issuperset(lacking)
    ]
    deed = f"grant {case.who} the {_plural('permission', lacking)}"
    if carrying and case.reader.everything:
        deed += (
            f", or the group {min(carrying)}, which carries {'it' if len(lacking) == 1 else 'them'}"
        )
    return _do(case, deed)


def _tier_with(case: RefusalCase, includes: Callable[[LicenseTier], bool]) -> str:
    for tier in case.reader.tiers:
        if includes(tier):
            return f"{tier.name} includes it."
    return "No tier of this installation includes it."


def _tier_with_builtin(case: RefusalCase) -> str:
    return _tier_with(case, lambda tier: tier.includes_builtin(case.tool.name))


def _tier_with_custom_tools(case: RefusalCase) -> str:
    return _tier_with(case, lambda tier: tier.max_custom_tools != 0)


def _tier_with_profiles(case: RefusalCase) -> str:
    return _tier_with(case, lambda tier: tier.custom_sandbox_profiles)


def _free_a_seat(case: RefusalCase) -> str:
    """The smallest tier with room for the custom tools there are."""
    count = sum(tool.custom for tool in case.reader.snapshot.tools.values())
    for tier in case.reader.tiers:
        if tier.max_custom_tools is None or tier.max_custom_tools >= count:
            return (
                f"{tier.name} has room for it; or {_lower(_do(case, 'delete other custom tools'))}"
            )
    return _do(case, "delete other custom tools")


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _tier_with_level(case: RefusalCase) -> str:
    level = effective_level(case.tool, case.reader.snapshot)
    return _tier_with(case, lambda t: t.isolation_levels is None or level in t.isolation_levels)


def _make_profile(case: RefusalCase) -> str:
    profile = case.tool.definition.sandbox_profile
    return _do(case, f"make the sandbox profile {profile}, or name another one in the definition")


def _permit_network(case: RefusalCase) -> str:
    return _do(case, "give the tool a sandbox profile with network_when_restricted")


def _activate(case: RefusalCase) -> str:
    return _do(case, f"activate {case.who} again, or give it a new token")


def _grant_groups(case: RefusalCase) -> str:
    beyond = sorted(case.asked.groups - case.reader.caller.granted_groups)
    names = _plural("group", beyond)
    return (
        f"Leave out the {names}, or grant {case.who} {'it' if len(beyond) == 1 else 'them'}."
        if case.reader.everything
        else f"Leave out the {names}."
    )


def _correct_group(case: RefusalCase) -> str:
    return "Correct the name, or make the group." if case.reader.everything else "Correct the name."


def _find_person(case: RefusalCase) -> str:
    return "A person who may decide confirmations must agree to each call."


def _wait_a_moment(case: RefusalCase) -> str:
    return f"Wait, or {_lower(_do(case, f'raise the limit a minute of {case.tool.name}'))}"


def _raise_allowance(case: RefusalCase) -> str:
    return f"Wait for the next period, or {_lower(_do(case, f'raise what {case.who} may use'))}"


def _wait_in_line(case: RefusalCase) -> str:
    return f"Wait, or {_lower(_do(case, 'raise how many calls of the organization may wait'))}"


def _finish_calls(case: RefusalCase) -> str:
    return f"Wait, or {_lower(_do(case, f'raise how many calls of {case.who} may be open'))}"


def _start_workers(case: RefusalCase) -> str:
    return f"Wait, or {_lower(_do(case, 'start more workers'))}"


REMEDIES: dict[str, Callable[[RefusalCase], str]] = {
    "agent_suspended": _activate,
    "group_not_granted": _grant_groups,
    "group_unknown": _correct_group,
    "tool_disabled": _enable,
    "tool_pending": _approve,
    "tool_quarantined": _lift_quarantine,
    SIGNATURE_INVALID: _see_to_it,
    "service_unavailable": _wait_for_service,
    "tool_not_in_group": _request_group,
    "tool_not_in_state": _change_state,
    "group_closed": _wait_for_opening,
    "tool_not_granted": _grant_tool,
    "token_excludes_tool": _widen_token,
    "permission_missing": _grant_permissions,
    "license_excludes_tool": _tier_with_builtin,
    "license_excludes_custom_tools": _tier_with_custom_tools,
    "license_tool_limit": _free_a_seat,
    "license_excludes_isolation": _tier_with_level,
    "license_excludes_profiles": _tier_with_profiles,
    "sandbox_profile_missing": _make_profile,
    "network_refused_when_restricted": _permit_network,
    "queue_full": _wait_in_line,
    "too_many_in_flight": _finish_calls,
    "overloaded": _start_workers,
    "rate_limited": _wait_a_moment,
    "quota_exceeded": _raise_allowance,
    "budget_exceeded": _raise_allowance,
    "confirmation_needed": _find_person,
}
