"""What a caller was granted: the tool itself, and the permissions the tool requires."""

from tools.catalog.registry import Snapshot
from tools.definitions.callers import Caller
from tools.definitions.names import WILDCARD
from tools.policy.decision import Question, Verdict
from tools.policy.grants import grants


def object_permission(question: Question) -> Verdict:
    held = grants.of(question.caller, question.snapshot.revision)
    if held.cover(question.tool.id):
        return Verdict("object_permission", True)
    reason = (
        f"The caller was not granted the tool {question.tool.name}. Ask an administrator for it."
    )
    return Verdict("object_permission", False, "tool_not_granted", reason)


def required_permissions(question: Question) -> Verdict:
    held = permissions_of(question.caller, question.snapshot)
    required = question.tool.definition.raw["required_permissions"]
    missing = [name for name in required if WILDCARD not in held and name not in held]
    if not missing:
        return Verdict("required_permissions", True)
    reason = f"The caller lacks permissions that {question.tool.name} requires: {', '.join(missing)}."
    return Verdict("required_permissions", False, "permission_missing", reason)


def permissions_of(caller: Caller, snapshot: Snapshot) -> frozenset[str]:
    """Those granted by name, and those that come with the groups the caller was granted."""
    everything = WILDCARD in caller.granted_groups
    through_groups = (
        group.permissions
        for group in snapshot.groups.values()
        if everything or group.name in caller.granted_groups
    )
    return caller.granted_permissions.union(*through_groups)


PERMISSION = (object_permission, required_permissions)
