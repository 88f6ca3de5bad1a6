"""What the organization's licence tier includes (specification S3, 7, and ruling 8)."""

from tools.policy.decision import Question, Verdict, passed
from tools.policy.isolation import ISOLATION


def licensed(question: Question) -> Verdict:
    tool, tier = question.tool, question.snapshot.tier
    if not tool.custom and not tier.includes_builtin(tool.name):
        reason = f"The {tier.name} licence does not include the built-in tool {tool.name}."
        return Verdict("license", False, "license_excludes_tool", reason)
    if tool.custom and tier.max_custom_tools == 0:
        reason = f"The {tier.name} licence does not include custom tools."
        return Verdict("license", False, "license_excludes_custom_tools", reason)
    return passed("license")


def profiles_licensed(question: Question) -> Verdict:
    name, tier = question.tool.definition.sandbox_profile, question.snapshot.tier
    if name is None or tier.custom_sandbox_profiles:
        return passed("sandbox_profile")
    reason = (
        f"The tool {question.tool.name} runs in the sandbox profile {name}, and the {tier.name} "
        "licence does not include profiles of one's own."
    )
    return Verdict("sandbox_profile", False, "license_excludes_profiles", reason)


# How a tool may be run is asked together with whether the licence lets it run.
LICENSE = (licensed, profiles_licensed, *ISOLATION)
