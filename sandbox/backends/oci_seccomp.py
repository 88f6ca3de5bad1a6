"""The seccomp filter of `inside/filter/calls.py` in the format of the OCI specification.

It holds from before the interpreter starts, so it has what starting and `inside/guest.py` need.
The filter of the level itself, which has less, the guest loads before its job.
"""

from itertools import product
from typing import Any

from sandbox.inside.filter import call_rules
from sandbox.inside.filter.arguments import YES, ArgumentCase, Check, Rule
from sandbox.inside.filter.call_rules import FilterRequirements

_MACHINES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_START_CALLS = FilterRequirements("usual", programs=True, new_code=True, sessions=True)
# How the guest shuts itself in: Landlock, its own filter, and the switches of prctl.
_OF_THE_GUEST = (
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "prctl",
    "seccomp",
)
_ERROR = 0xFFFF

type Line = dict[str, Any]


def seccomp_profile(machine: str) -> Line:
    """Raises KeyError for a machine without a table: there is no run without a filter."""
    named = call_rules.rules(_START_CALLS) | dict.fromkeys(_OF_THE_GUEST, Rule(YES))
    free = sorted(name for name, rule in named.items() if rule.otherwise == YES)
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": Rule().otherwise & _ERROR,
        "architectures": [_MACHINES[machine]],
        "syscalls": [
            _allow(free),
            *(line for name in sorted({*named} - {*free}) for line in _lines(name, named[name])),
        ],
    }


def _lines(name: str, rule: Rule) -> list[Line]:
    """What is refused only sometimes is allowed here; the guest's own filter knows better."""
    allowed = [line for case in rule.cases if case.answer == YES for line in _cases(name, case)]
    if allowed or rule.otherwise == Rule().otherwise:
        return allowed
    error = rule.otherwise & _ERROR
    return [{"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": error}]


def _cases(name: str, case: ArgumentCase) -> list[Line]:
    """A line for each combination of values: all conditions of a line must hold."""
    choices = [[_equal(check, value) for value in check.values] for check in case.checks]
    return [_allow([name], list(conditions)) for conditions in product(*choices)]


def _equal(check: Check, value: int) -> Line:
    masked = {"value": check.mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
    return {"index": check.argument, **masked}


def _allow(names: list[str], conditions: list[Line] | None = None) -> Line:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": conditions or []}
