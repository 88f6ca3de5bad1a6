"""The gates for a caller's grants: the tool itself, and the permissions that the tool requires."""

from tools.accounts.grants.grants import grants, permissions_of
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.policy.questions import AccessRequest, Verdict, passed


def object_permission(question: AccessRequest) -> Verdict:
    caller, tool, snapshot = question.caller, question.tool, question.snapshot
    if caller.token_tools is not None and tool.name not in caller.token_tools:
        reason = f"This token is not good for the tool {tool.name}, only for: {_listed(caller)}."
        return Verdict("object_permission", False, "token_excludes_tool", reason)
    if grants.of(caller, snapshot.revision).cover(tool, snapshot):
        return passed("object_permission")
    reason = f"The caller was not granted the tool {tool.name}. Ask an administrator for it."
    return Verdict("object_permission", False, "tool_not_granted", reason)


def may_know(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """A tool that the caller may execute by a grant on it or on its group, or that is in a group it
    was granted: whatever its status, its states and the license."""
    held, only = grants.of(caller, snapshot.revision), caller.token_tools
    if not held.cover(tool, snapshot) or (only is not None and tool.name not in only):
        return False
    groups = caller.granted_groups  # a wildcard also covers tools in no group
    return not held.every or WILDCARD in groups or not groups.isdisjoint(snapshot.groups_of(tool))


def _listed(caller: Caller) -> str:
    return ", ".join(sorted(caller.token_tools or ())) or "none"


def required_permissions(question: AccessRequest) -> Verdict:
    held = permissions_of(question.caller, question.snapshot)
    required = question.tool.definition.raw["required_permissions"]
    missing = [name for name in required if WILDCARD not in held and name not in held]
    if not missing:
        return passed("required_permissions")
    reason = (
        f"The caller lacks permissions that {question.tool.name} requires: {', '.join(missing)}."
    )
    return Verdict("required_permissions", False, "permission_missing", reason)


PERMISSION = (object_permission, required_permissions)
