"""`manage.py invoke_tool`: call a tool in an agent's name, through the execution pipeline."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from tools.catalog.registry import registry
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.execution import answer, outputs
from tools.execution.call import Call
from tools.management import arguments, command
from tools.management.command import DONE, FAILED, ToolcribCommand
from tools.models import Execution
from tools.shapes.executions import execution_shape

QUEUE_S = 30  # how long a call may wait for a worker, beside its timeout


class Command(ToolcribCommand):
    help = "Calls a tool as an agent would: every gate, the sandbox, the audit record."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        arguments.add_agent(parser, required=True)
        parser.add_argument(
            "--parameters",
            type=arguments.parse_parameters,
            default={},
            metavar="JSON",
            help="a JSON object; - reads it from standard input",
        )
        arguments.add_request(parser)
        parser.add_argument(
            "--timeout",
            type=arguments.parse_duration_argument,
            metavar="PT10S",
            help="at most the tool's own",
        )
        parser.add_argument(
            "--session", metavar="ID", help="of the agent; its groups and state are the server's"
        )

    def perform(self, options: dict[str, Any]) -> int:
        caller = arguments.find_caller(options["organization"], options["agent"])
        call = Call(
            tool_name=options["name"],
            parameters=options["parameters"],
            group=arguments.requested_groups(options),
            state=options["state"],
            session=options["session"],
            timeout_s=options["timeout"],
        )
        execution = answer.execute(caller=caller, call=call, wait_s=call_timeout_s(caller, call))
        self.answer(options, execution_shape(execution), _format_result(execution))
        if execution.status == Status.SUCCESS:
            return DONE
        command.write_text(self.stderr, _format_error(execution))
        return FAILED


def call_timeout_s(caller: Caller, call: Call) -> float:
    """The timeout of the call, and `QUEUE_S` for the queue."""
    tool = registry.snapshot(caller.organization_id, caller.revision).tool(call.tool_name)
    allowed = tool.definition.timeout_s if tool else settings.EXECUTION_TIMEOUT_S
    return min(allowed, call.timeout_s or allowed) + QUEUE_S


def _format_result(execution: Execution) -> str:
    lines = [
        ("Status", execution.status),
        ("Execution", str(execution.pk)),
        ("Version", execution.version_label),
    ]
    if execution.session_id is not None:
        lines.append(("Session", str(execution.session_id)))
        lines.append(("State", execution.state_after or execution.state))
    if execution.duration_ms is not None:
        lines.append(("Duration", f"{execution.duration_ms:.1f} ms"))
    lines += [("Warning", warning) for warning in execution.warnings]
    shown = command.format_fields(lines)
    if execution.status != Status.SUCCESS:
        return shown
    return f"{shown}\n\n{_format_output(outputs.load_output(execution))}"


def _format_output(output: Any) -> str:
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, indent=2)


def _format_error(execution: Execution) -> str:
    if not execution.is_final:
        return (
            "The call is not over yet; nobody may be working on calls. "
            f"Read it later: GET /api/v1/executions/{execution.pk}"
        )
    return f"{execution.error_code}: {execution.error_message}"
