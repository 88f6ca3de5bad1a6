"""`manage.py invoke_agent`: ask an agent a question, and print its steps, one per line."""

import json
from argparse import ArgumentTypeError
from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from tools.agents import agent_requests
from tools.agents import agent_requests as agent_actions
from tools.agents.agent_requests import AgentEventKind, AgentRunReport, AgentRunRequest, StepEvent
from tools.agents.recordings import find_run
from tools.agents.run_parameters import ITERATIONS, PATTERNS, REACT, TOKENS
from tools.definitions.results import Status
from tools.execution import answer
from tools.management import arguments, command
from tools.management.command import DONE, FAILED, ToolcribCommand
from tools.shapes.executions import agent_request_shape

_LONGEST = 300  # characters of a line about a step


class Command(ToolcribCommand):
    help = "Asks an agent as its caller would, and shows its steps as they come."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("question", metavar="QUESTION", nargs="?", default="")
        arguments.add_agent(parser, required=True)
        arguments.add_request(parser)
        parser.add_argument("--session", metavar="ID", help="else the request has one of its own")
        parser.add_argument("--pattern", choices=PATTERNS, default=REACT)
        words = "steps taken before; - reads them from standard input"
        parser.add_argument("--history", type=history, default=[], metavar="JSON", help=words)
        parser.add_argument("--model", default="", help="another than the installation's")
        parser.add_argument("--max-iterations", type=int, default=ITERATIONS, metavar="N")
        parser.add_argument("--max-tokens", type=int, default=TOKENS, metavar="N")
        parser.add_argument("--max-cost", metavar="AMOUNT")
        parser.add_argument("--continues", type=UUID, metavar="ID", help="goes on from that one")
        parser.add_argument("--replays", type=UUID, metavar="ID", help="calls no tool")
        words = "agents that may go on from it"
        parser.add_argument(
            "--share-with",
            type=arguments.parse_slug,
            nargs="*",
            default=[],
            metavar="A",
            help=words,
        )
        parser.add_argument("--timeout", type=arguments.parse_duration_argument, metavar="PT5M")

    def perform(self, options: dict[str, Any]) -> int:
        caller = arguments.find_caller(options["organization"], options["agent"])
        call = agent_actions.build_call(caller, _run_request(options))
        run = answer.execute(caller=caller, call=call, wait_s=0)
        for event in agent_requests.follow_run(caller, run.pk, 0):
            line = _format_step(event) if event is not None else ""
            if line and not options["json"]:
                command.write_text(self.stdout, line)
        report = agent_actions.load_report(caller, find_run(caller, run.pk))
        self.answer(options, agent_request_shape(report), _format_report(report))
        if report.run.status == Status.SUCCESS:
            return DONE
        command.write_text(self.stderr, f"{report.run.error_code}: {report.run.error_message}")
        return FAILED


def history(given: str) -> list[Any]:
    """A JSON list of steps."""
    found = arguments.parse_json(given)
    if not isinstance(found, list) or not all(isinstance(step, dict) for step in found):
        raise ArgumentTypeError("a history is a JSON list of steps")
    return found


def _run_request(options: dict[str, Any]) -> AgentRunRequest:
    given = ("question", "pattern", "history", "model", "max_iterations", "max_tokens", "max_cost")
    runs = {name: str(options[name]) for name in ("continues", "replays") if options[name]}
    return AgentRunRequest(
        {name: options[name] for name in given} | runs | {"shared_with": options["share_with"]},
        group=arguments.requested_groups(options),
        state=options["state"],
        session=options["session"],
        timeout_s=options["timeout"],
    )


def _format_step(event: StepEvent) -> str:
    data = event.data
    match event.kind:
        case AgentEventKind.ACTION:
            words = f"{data['action']} {json.dumps(data['arguments'], ensure_ascii=False)}"
        case AgentEventKind.END | AgentEventKind.ANSWER:
            return ""
        case _:
            words = " ".join(data["text"].split())
    return f"{data['step']:>3} {event.kind:<12} {words[:_LONGEST]}" if words else ""


def _format_report(report: AgentRunReport) -> str:
    spent = report.spent
    lines = [
        ("Status", str(report.run.status)),
        ("Request", str(report.run.pk)),
        ("State", report.state),
        ("Tokens", f"{spent.input_tokens} in, {spent.output_tokens} out"),
        ("Cost", f"{spent.cost.normalize():f}"),
    ]
    shown = command.format_fields(lines)
    return shown if report.answer is None else f"{shown}\n\n{report.answer}"
