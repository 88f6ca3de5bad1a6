"""Faults written by hand: what no change of the suite may stop catching.

Each is a name, a file, a whole line of it without its indentation, what the line becomes, and the
functions that refuse: of the tests that execute them, those that execute their rarest lines come
first, for thousands of tests pass a gate and few are refused by it.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.proof.mutants import Moved, Mutant
from tools.policy import gates
from tools.policy.gates import Scope

type Gate = tuple[str, str, str, str, tuple[str, ...]]

_ADMISSION = "tools/execution/admit.py"
_ACCEPTANCE = "tools/execution/accept.py"
_CLAIM = "tools/execution/claim.py"
_EXECUTION = "tools/models/execution_queryset.py"
_STATEMENTS = "tools/models/pipeline_sql.py"
_SANDBOXING = "tools/runners/sandbox_runs.py"
_GATES = "tools/policy/gates.py"
_CALL = "tools/policy/call_gates.py"
_AVAILABLE = "tools/policy/availability.py"
_LICENSE = "tools/policy/license_gates.py"
# Entries of a tuple, one a line, which are taken out.
_STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    _ADMISSION: {
        "resolve": (f"{_ADMISSION}:resolve",),
        "arrive": (f"{_CALL}:nesting", "tools/limits/load_shedder.py:enter"),
        "enter_session": ("tools/execution/sessions.py:enter_session",),
        "authorize": (f"{_CALL}:granted_groups", f"{_AVAILABLE}:in_group"),
        "limit_rate": ("tools/limits/rate_limits.py:count",),
        "check_json": (f"{_ADMISSION}:check_json",),
        "outputs.resolve_references": ("tools/execution/outputs.py:resolve_references",),
        "validate_arguments": (f"{_CALL}:arguments",),
    },
    _ACCEPTANCE: {
        "find_need": (f"{_ACCEPTANCE}:find_need", f"{_CALL}:confirmation"),
        "reserve_budget": ("tools/limits/budgets.py:refusing",),
        "hold": ("tools/execution/confirmations.py:request_approval",),
    },
    _CLAIM: {
        "ask_again": (f"{_CLAIM}:ask_again",),
        "sessions.check_session": ("tools/execution/sessions.py:check_session",),
        "outputs.check_references": ("tools/execution/outputs.py:check_references",),
        "check_signature": (f"{_CLAIM}:check_signature",),
        "confirmations.spend_approval": ("tools/execution/confirmations.py:spend_approval",),
    },
}
# Functions that refuse beside the gate's own, by the name of the gate.
_REFUSING: dict[str, tuple[str, ...]] = {
    "ACCOUNTABLE": ("tools/authorization/facts.py:audit_halted",),
    "LOAD": ("tools/limits/load_shedder.py:enter",),
    "FAN_OUT": ("tools/limits/answers.py:check_fan_out",),
    "LICENSE": (f"{_LICENSE}:_seated",),
    "RATE": ("tools/limits/rate_limits.py:count",),
    "BUDGET": ("tools/limits/budgets.py:refusing",),
    "CONFIRMATION": ("tools/policy/approval_requirements.py:requirement_of",),
}


def _without_gates() -> Iterator[Gate]:
    """Each entry of `gates.GATES`, one a line."""
    for check in gates.GATES:
        name, function = check.name.name, check.decide
        module = function.__module__.rpartition(".")[2]
        line = f"GateCheck(Gate.{name}, {module}.{function.__name__}, Stage.{check.stage.name}"
        scope = "" if check.scope == Scope.CALL else f", Scope.{check.scope.name}"
        refusing = (f"tools/policy/{module}.py:{function.__name__}", *_REFUSING.get(name, ()))
        yield f"no gate {check.name}", _GATES, f"{line}{scope}),", "", refusing


def _without_steps() -> Iterator[Gate]:
    for file, steps in _STEPS.items():
        for step, refusing in steps.items():
            yield f"{Path(file).stem} without {step}", file, f"{step},", "", refusing


GATES: tuple[Gate, ...] = (
    *_without_steps(),
    *_without_gates(),
    (
        "acceptance without evidence",
        _ACCEPTANCE,
        "belonging = [*_evidence(admission), _request_record(admission)]",
        "belonging = [_request_record(admission)]",
        (f"{_ACCEPTANCE}:_evidence",),
    ),
    (
        "a call that begins as it is accepted without its START",
        _ACCEPTANCE,
        "belonging += start_evidence(admission.performance)",
        "pass",
        (f"{_CLAIM}:start_evidence",),
    ),
    (
        "a call that begins as it is accepted with a halted log",
        _STATEMENTS,
        'NOT_HALTED = HALTED_REASON_SQL.format(name="%(log)s") + " IS NULL"',
        'NOT_HALTED = "%(log)s::text IS NOT NULL"',
        ("tools/execution/accept.py:write",),
    ),
    (
        "a claim without its START",
        _CLAIM,
        "evidence = start_evidence(performance) if starts else []",
        "evidence = []",
        (f"{_CLAIM}:start_evidence",),
    ),
    (
        "acceptance without the count of PostgreSQL",
        _ACCEPTANCE,
        "conditions.append(NO_HITS)",
        "pass",
        ("tools/limits/rate_limits.py:confirm",),
    ),
    (
        "a claim that keeps the fence",
        _STATEMENTS,
        "SET status = %(running)s, fence = fence + 1, worker = %(worker)s,",
        "SET status = %(running)s, fence = greatest(fence, 1), worker = %(worker)s,",
        ("tools/execution/requeue.py:record_late", f"{_EXECUTION}:take"),
    ),
    (
        "an end without the fence",
        _STATEMENTS,
        "WHERE id = %(pk)s AND fence = %(fence)s AND status = %(running)s",
        "WHERE id = %(pk)s AND status = %(running)s",
        ("tools/execution/requeue.py:record_late", f"{_EXECUTION}:finish"),
    ),
    (
        "an answer of an end that was not stored",
        "tools/execution/finish.py",
        "performance.ended = False",
        "pass",
        ("tools/execution/perform.py:_answer_of",),
    ),
    (
        "a row held without the fence",
        _EXECUTION,
        "return self.filter(pk=pk, fence=fence, status=Status.RUNNING)",
        "return self.filter(pk=pk, status=Status.RUNNING)",
        (f"{_EXECUTION}:held",),
    ),
    (
        "a rate that is counted and not refused",
        "tools/limits/rate_limits.py",
        "raise bound.refusal(answer.used, answer.leaves_in_s)",
        "pass",
        (),
    ),
    (
        "a run without its timeout",
        _SANDBOXING,
        "limits = Limits(wall_s=run.timeout_s, output_bytes=run.definition.max_output_bytes)",
        "limits = Limits(output_bytes=run.definition.max_output_bytes)",
        (),
    ),
    (
        "a run without its limit of output",
        _SANDBOXING,
        "limits = Limits(wall_s=run.timeout_s, output_bytes=run.definition.max_output_bytes)",
        "limits = Limits(wall_s=run.timeout_s)",
        (),
    ),
    (
        "a sandbox without its limit of output",
        "sandbox/daemon/runs/sandbox_run.py",
        "if self._streams[stream].received > self._limits.output_bytes:",
        "if False:",
        (),
    ),
    (
        "executions of every organization",
        "tools/execution/outputs.py",
        "rows = Execution.objects.filter(organization_id=caller.organization_id)",
        "rows = Execution.objects.all()",
        (),
    ),
    (
        "agents of every organization",
        "tools/api/accounts/agents.py",
        "return Agent.objects.filter(organization_id=self.caller.organization_id).select_related(",
        "return Agent.objects.select_related(",
        (),
    ),
    (
        "audit records of every organization",
        "audit/records/record_search.py",
        "return AuditRecord.objects.filter(organization=organization)",
        "return AuditRecord.objects.all()",
        (),
    ),
    (
        "the page of agents without a permission",
        "tools/ui/agents/agents.py",
        '@page("view_agent")',
        "@page()",
        (),
    ),
    (
        "the page of settings without a permission",
        "tools/ui/settings/settings.py",
        '@page("audit.view_auditrecord")',
        "@page()",
        (),
    ),
    (
        "acknowledging an alert without a permission",
        "tools/ui/audit/alerts.py",
        "@action_page(Proof.NOT_NEEDED, CHANGE)",
        "@action_page(Proof.NOT_NEEDED)",
        (),
    ),
)


def gate_mutants(root: Path) -> list[Mutant]:
    """`GATES` in this source. Raises `Moved` with all that are not there exactly once."""
    found = [_gate_mutant(root, gate) for gate in GATES]
    missing = [text for text in found if isinstance(text, str)]
    if missing:
        raise Moved("\n".join(missing))
    return [mutant for mutant in found if isinstance(mutant, Mutant)]


def _gate_mutant(root: Path, gate: Gate) -> Mutant | str:
    name, file, original, changed, focus = gate
    lines = (root / file).read_text().split("\n")
    found = [number for number, line in enumerate(lines, 1) if line.strip() == original]
    if len(found) != 1:
        return f"{name}: {file} has the line {original!r} {len(found)} times, not once"
    text = lines[found[0] - 1]
    column = text.index(original)
    return Mutant("gates", file, found[0], column, name, original, changed, text, focus)
