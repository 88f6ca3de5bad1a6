"""What the organization's licence tier includes (specification S3, 7, and ruling 8)."""

from tools.policy.decision import Question, Verdict, passed


def licensed(question: Question) -> Verdict:
    tool, tier = question.tool, question.snapshot.tier
    if not tool.custom and not tier.includes_builtin(tool.name):
        reason = f"The {tier.name} licence does not include the built-in tool {tool.name}."
        return Verdict("license", False, "license_excludes_tool", reason)
    if tool.custom and tier.max_custom_tools == 0:
        reason = f"The {tier.name} licence does not include custom tools."
        return Verdict("license", False, "license_excludes_custom_tools", reason)
    return passed("license")


LICENSE = (licensed,)
