"""Determines a call's isolation level in the sandbox: the strongest of all requirements, never
less. With the gates for sandbox profiles and for the network.

The definition says what it needs; the organization, the sandbox profile and who wrote the code may
raise that. Nothing lowers it.
"""

from typing import TYPE_CHECKING

from sandbox.levels import strongest
from sandbox.spec import IsolationLevel
from tools.definitions.vocabulary import ToolType
from tools.policy.questions import Gate, Question, Verdict, passed

if TYPE_CHECKING:
    from tools.catalog.snapshot import CatalogProfile, CatalogTool, Snapshot


def effective_level(tool: "CatalogTool", snapshot: "Snapshot") -> IsolationLevel:
    profile = profile_of(tool, snapshot)
    return strongest(
        IsolationLevel(tool.definition.isolation),
        snapshot.minimum_isolation,
        profile.minimum_isolation if profile else IsolationLevel.NONE,
        _level_of_origin(tool),
    )


def profile_of(tool: "CatalogTool", snapshot: "Snapshot") -> "CatalogProfile | None":
    return snapshot.profiles.get(tool.definition.sandbox_profile or "")


def profile_exists(question: Question) -> Verdict:
    """Checks again at use that the profile exists: it existed when the definition was written."""
    tool = question.tool
    name = tool.definition.sandbox_profile
    if name is None or name in question.snapshot.profiles:
        return passed(Gate.ISOLATION)
    reason = f"The tool {tool.name} names the sandbox profile {name}, which is not there."
    return Verdict(Gate.ISOLATION, False, "sandbox_profile_missing", reason)


def network_permitted(question: Question) -> Verdict:
    """At Restricted there is no network, unless the profile says so: a tool that needs it is
    refused rather than run without."""
    tool, snapshot = question.tool, question.snapshot
    profile = profile_of(tool, snapshot)
    if (
        not _requests_network(tool, profile)
        or (profile is not None and profile.network_when_restricted)
        or effective_level(tool, snapshot) != IsolationLevel.RESTRICTED
    ):
        return passed(Gate.NETWORK)
    reason = (
        f"The tool {tool.name} needs the network and runs at the level Restricted, which has none. "
        "A sandbox profile with network_when_restricted would permit it."
    )
    return Verdict(Gate.NETWORK, False, "network_refused_when_restricted", reason)


def _level_of_origin(tool: "CatalogTool") -> IsolationLevel:
    """Code that neither a person nor the product answers for is treated as hostile."""
    if not tool.custom:
        return IsolationLevel.NONE
    return IsolationLevel.STANDARD if tool.vouched else IsolationLevel.RESTRICTED


def _requests_network(tool: "CatalogTool", profile: "CatalogProfile | None") -> bool:
    if tool.definition.type == ToolType.HTTP:
        return profile is None or profile.allow_network
    if tool.custom:
        return profile is not None and profile.allow_network
    return tool.requests_network and (profile is None or profile.allow_network)
