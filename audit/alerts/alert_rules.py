"""Create and change alert rules. They apply to every organization of the installation."""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from audit.actions import Actor, difference, record
from audit.alerts import fixed_rules
from audit.alerts.rule_kinds import CUSTOM_KINDS, KINDS, LONGEST_CODE, MOST_CODES, NumberRange
from audit.errors import AuditFlaw
from audit.events import Event, Outcome
from audit.models import AlertRule

CHANGEABLE_FIELDS = ("severity", "window_s", "least", "values", "enabled")
LONGEST_WINDOW_S = 7 * 86_400
MOST_RECORDS = 1_000_000


@transaction.atomic
def change_rule(*, rule: AlertRule, by: Actor, **changes: Any) -> AlertRule:
    """Set some of `CHANGEABLE_FIELDS`; `values` replaces all of them. Raises `AuditFlaw`."""
    row = AlertRule.objects.select_for_update().get(pk=rule.pk)
    before = _rule_values(row)
    for name in CHANGEABLE_FIELDS:
        setattr(row, name, changes.get(name, getattr(row, name)))
    _save(row)
    _record(row, by, before)
    return row


@transaction.atomic
def create_rule(*, name: str, kind: str, by: Actor, description: str, **fields: Any) -> AlertRule:
    """Create a custom rule over codes, reasons and outcomes. Raises `AuditFlaw`."""
    if kind not in CUSTOM_KINDS:
        raise AuditFlaw(f"A rule of your own is one of {', '.join(CUSTOM_KINDS)}.", "kind")
    row = AlertRule(name=name, kind=kind, description=description)
    for field in CHANGEABLE_FIELDS:
        setattr(row, field, fields.get(field, getattr(row, field)))
    taken = name in {rule.name for rule in fixed_rules.FIXED_RULES}
    if taken or AlertRule.objects.filter(name=name).exists():
        raise AuditFlaw(f"There is a rule {name} already.", "name")
    _save(row)
    _record(row, by, None)
    return row


def _save(row: AlertRule) -> None:
    row.values = read_values(row.kind, row.values)
    if not 1 <= row.window_s <= LONGEST_WINDOW_S:
        raise AuditFlaw(f"A rule looks back 1 to {LONGEST_WINDOW_S} seconds.", "window_s")
    if not 1 <= row.least <= MOST_RECORDS:
        raise AuditFlaw(f"It takes 1 to {MOST_RECORDS} records to be an alert.", "least")
    try:
        row.full_clean()
    except ValidationError as error:
        field = next(iter(error.message_dict), "")
        raise AuditFlaw(" ".join(error.messages), field if hasattr(row, field) else "") from None
    row.save()


def read_values(kind: str, given: Any) -> dict[str, Any]:
    """Validate the values of a rule of this kind. Raises `AuditFlaw`."""
    if not isinstance(given, Mapping):
        raise AuditFlaw("The values of a rule are a JSON object.", "values")
    known = KINDS[kind]
    if unknown := sorted(set(given) - {*known.numbers, *known.lists}):
        raise AuditFlaw(f"A rule of kind {kind} has no {', '.join(unknown)[:200]}.", "values")
    numbers = {
        name: _read_number(name, given[name], bounds)
        for name, bounds in known.numbers.items()
        if name in given
    }
    lists = {name: _read_codes(name, given[name]) for name in known.lists if given.get(name)}
    if known.lists and not lists.get("codes") and not lists.get("reasons"):
        raise AuditFlaw("Name at least one code or reason: every record would be found.", "values")
    return numbers | lists


def _read_number(name: str, value: Any, bounds: NumberRange) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not bounds.least <= value <= bounds.most:
        raise AuditFlaw(f"{name} is a number from {bounds.least} to {bounds.most}.", "values")
    if isinstance(bounds.usual, int) and not isinstance(value, int):
        raise AuditFlaw(f"{name} is a whole number.", "values")
    found: float = value
    return found


def _read_codes(name: str, value: Any) -> list[str]:
    fits = isinstance(value, list) and len(value) <= MOST_CODES
    if not fits or not all(isinstance(item, str) and _is_code(item) for item in value):
        raise AuditFlaw(
            f"{name} is a list of at most {MOST_CODES} texts of 1 to {LONGEST_CODE} letters.",
            "values",
        )
    return list(dict.fromkeys(value))


def _is_code(text: str) -> bool:
    return 0 < len(text) <= LONGEST_CODE and text.isascii() and text.isprintable()


def _rule_values(row: AlertRule) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("kind", "description", *CHANGEABLE_FIELDS)}


def _record(row: AlertRule, by: Actor, before: dict[str, Any] | None) -> None:
    changed = difference(before, _rule_values(row))
    if changed["before"] or changed["after"]:
        record(
            Event.ALERT_RULE_CHANGE,
            by=by,
            outcome=Outcome.CHANGED,
            subject=row.name,
            details=dict(changed),
        )
