"""`manage.py lint_tools`: print the linter's findings for groups and states."""

from collections import Counter
from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.registry import registry
from tools.catalog.workflow.lint import WorkflowFinding, WorkflowSeverity
from tools.catalog.workflow.workflow import EVERY_GROUP
from tools.insight.workflow_findings import findings
from tools.management import arguments
from tools.management.command import DONE, FAILED, ToolcribCommand

_PLURALS = {
    WorkflowSeverity.ERROR: "errors",
    WorkflowSeverity.WARNING: "warnings",
    WorkflowSeverity.INFORMATION: "for your information",
}


class Command(ToolcribCommand):
    help = (
        "Checks the states and groups of an organization's tools: cycles, dead ends, states "
        "nothing leads to, tools nobody can see. Exit code 1 when one of the findings is an error."
    )

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)
        parser.add_argument(
            "--group",
            action="extend",
            nargs="+",
            metavar="G",
            help="check what requests for these groups see; absent: every group",
        )

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        snapshot = registry.snapshot(organization.pk, organization.revision)
        groups = arguments.requested_groups(options)
        found = findings(snapshot, EVERY_GROUP if groups is None else frozenset(groups))
        document = {"results": [finding.as_dict() for finding in found]}
        self.answer(options, document, _format_findings(found))
        return FAILED if any(one.severity == WorkflowSeverity.ERROR for one in found) else DONE


def _format_findings(found: tuple[WorkflowFinding, ...]) -> str:
    if not found:
        return "Nothing to say."
    counts = Counter(finding.severity for finding in found)
    parts = [f"{counts[severity]} {_PLURALS[severity]}" for severity in WorkflowSeverity]
    return "\n".join([*map(_paragraph, found), f"{', '.join(parts)}."])


def _paragraph(finding: WorkflowFinding) -> str:
    head = f"{finding.severity.value.upper()}  {finding.code}"
    return f"{head}\n  {finding.message}\n  {finding.remedy}\n"
