"""Catalogs that several tests use."""

from tests import factories
from tools.models import Organization

# Specification S1, 5.1: name, groups, state, available in states. Its group `knowledge` is called
# `library`: built-in tools have a `knowledge` of their own.
WORKFLOW = (
    ("knowledge-query", ["read-only", "library", "basic"], "analysis", ["undefined", "research"]),
    ("graph-update", ["write", "library", "admin"], None, ["analysis", "modification"]),
    ("text-completion", ["read-only", "text", "basic"], "undefined", None),
    ("complex-analysis", ["advanced", "compute", "expensive"], "results", ["analysis"]),
    ("reset-workflow", ["admin"], "undefined", ["analysis", "results"]),
)
EVERY_GROUP = sorted({group for _, groups, _, _ in WORKFLOW for group in groups})


def workflow(organization: Organization) -> None:
    for name, group, state, states in WORKFLOW:
        factories.tool(organization, name, group=group, state=state, available_in_states=states)
