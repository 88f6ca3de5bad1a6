"""The license gates: what the organization's license includes (specification S3, 7, and ruling 8).

The effective tier follows from the clock at each check. What a license does not include is refused;
nothing ever runs at a weaker isolation level because of it.
"""

from typing import TYPE_CHECKING

from sandbox.spec import IsolationLevel
from tools.policy.isolation_levels import profile_of
from tools.policy.questions import Gate, Question, Verdict, passed

if TYPE_CHECKING:
    from tools.catalog.snapshot import Snapshot
    from tools.models import LicenseTier


def licensed(question: Question) -> Verdict:
    tool, snapshot = question.tool, question.snapshot
    tier = question.facts.tier(snapshot)
    if tool.custom:
        return _seated(question, tier)
    if tier.includes_builtin(tool.name):
        return passed(Gate.LICENSE)
    reason = f"The {tier.name} licence does not include the built-in tool {tool.name}."
    return Verdict(
        Gate.LICENSE, False, "license_excludes_tool", reason + _describe_expiry(snapshot, tier)
    )


def profiles_licensed(question: Question) -> Verdict:
    tool, snapshot = question.tool, question.snapshot
    name = tool.definition.sandbox_profile
    if name is None or (tier := question.facts.tier(snapshot)).custom_sandbox_profiles:
        return passed(Gate.SANDBOX_PROFILE)
    reason = (
        f"The tool {tool.name} runs in the sandbox profile {name}, and the {tier.name} "
        f"licence does not include profiles of one's own.{_describe_expiry(snapshot, tier)}"
    )
    return Verdict(Gate.SANDBOX_PROFILE, False, "license_excludes_profiles", reason)


def isolation_licensed(question: Question) -> Verdict:
    """A configured level must be in the license; a tool's minimum level always is.

    Refused, not run at a lower level: an expired license must not weaken isolation.
    """
    tool, snapshot = question.tool, question.snapshot
    tier = question.facts.tier(snapshot)
    if tier.isolation_levels is None:
        return passed(Gate.ISOLATION_LICENSE)
    profile = profile_of(tool, snapshot)
    asked = [tool.definition.raw["constraints"]["required_isolation"], snapshot.minimum_isolation]
    asked += [profile.minimum_isolation] if profile else []
    if all(level in tier.isolation_levels for level in asked):
        return passed(Gate.ISOLATION_LICENSE)  # nearly always, and cheaply
    beyond = question.facts.excluded_level(tool, tier, [IsolationLevel(level) for level in asked])
    if beyond is None:
        return passed(Gate.ISOLATION_LICENSE)
    included = ", ".join(tier.isolation_levels) or "none"
    reason = (
        f"The tool {tool.name} is to run at the isolation level {beyond}, and the {tier.name} "
        f"licence includes only: {included}. Move to a higher tier, or ask an "
        f"administrator to demand less.{_describe_expiry(snapshot, tier)}"
    )
    return Verdict(Gate.ISOLATION_LICENSE, False, "license_excludes_isolation", reason)


def _seated(question: Question, tier: "LicenseTier") -> Verdict:
    tool, snapshot, limit = question.tool, question.snapshot, tier.max_custom_tools
    if limit == 0:
        reason = f"The {tier.name} licence does not include custom tools."
        code = "license_excludes_custom_tools"
        return Verdict(Gate.LICENSE, False, code, reason + _describe_expiry(snapshot, tier))
    if limit is None or question.facts.has_seat(tool, snapshot, limit):
        return passed(Gate.LICENSE)
    reason = (
        f"The tool {tool.name} is beyond the {limit} custom tools of the {tier.name} licence. "
        f"Delete others, or move to a higher tier.{_describe_expiry(snapshot, tier)}"
    )
    return Verdict(Gate.LICENSE, False, "license_tool_limit", reason)


def _describe_expiry(snapshot: "Snapshot", tier: "LicenseTier") -> str:
    """The reason for a lower tier, where the license has expired."""
    if tier == snapshot.tier or snapshot.license.expires_at is None:
        return ""
    return f" The {snapshot.tier.name} licence ended on {snapshot.license.expires_at:%Y-%m-%d}."
