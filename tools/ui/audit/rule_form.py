"""The form of an alert rule: its inputs, submitted values and errors."""

from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from audit.alerts.alert_rules import LONGEST_WINDOW_S, MOST_RECORDS, read_values
from audit.alerts.rule_kinds import CUSTOM_KINDS, KINDS
from audit.errors import AuditFlaw
from audit.events import Severity
from audit.models import AlertRule

_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
KINDS_IN_WORDS = {
    "by_actor": "Counts the records of each who acts",
    "by_subject": "Counts the records of each who acts and what it is about",
    "every_group": "Counts requests for every group",
    "hasty_approval": "Counts consents given faster than anybody reads",
    "possible_effect": "Finds calls that may have had an effect and said nothing",
    "unusual_usage": "Compares calls with those of the last week",
    "first_use": "Finds the first use of a tool",
    "unusual_group": "Finds groups not used for 30 days",
    "unusual_step": "Finds steps of a workflow never taken before",
}


@dataclass
class AlertRuleForm:
    """`flaws` are errors by input; errors of no input are under `whole`."""

    kind: str
    name: str = ""
    description: str = ""
    severity: str = str(Severity.WARNING)
    window: str = "5"
    unit: str = "minutes"
    least: str = "1"
    enabled: bool = True
    numbers: dict[str, str] = field(default_factory=dict)
    lists: dict[str, str] = field(default_factory=dict)
    flaws: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of_rule(cls, rule: AlertRule) -> "AlertRuleForm":
        unit, seconds = next(one for one in _UNITS if rule.window_s % one[1] == 0)
        known = KINDS[rule.kind]
        numbers = {
            name: str(rule.values.get(name, bounds.usual)) for name, bounds in known.numbers.items()
        }
        lists = {name: ", ".join(rule.values.get(name, ())) for name in known.lists}
        return cls(
            rule.kind, rule.name, rule.description, rule.severity, str(rule.window_s // seconds),
            unit, str(rule.least), rule.enabled, numbers, lists,
        )  # fmt: skip

    @classmethod
    def given(cls, data: QueryDict, kind: str) -> "AlertRuleForm":
        def said(name: str) -> str:
            return str(data.get(name, "")).replace("\x00", "").strip()[:2_000]

        known = KINDS[kind]
        return cls(
            kind, said("name"), said("description")[:300], said("severity"), said("window"),
            said("unit"), said("least"), data.get("enabled") == "yes",
            {name: said(f"number.{name}") for name in known.numbers},
            {name: said(f"list.{name}") for name in known.lists},
        )  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """The fields of the rule; empty where the form is invalid, with `flaws` set."""
        window_s = self._whole("window", self.window, LONGEST_WINDOW_S) * self._seconds()
        read: dict[str, Any] = {
            "severity": self._severity(),
            "window_s": window_s,
            "least": self._whole("least", self.least, MOST_RECORDS),
            "values": self._values(),
            "enabled": self.enabled,
        }
        if not self.flaws and window_s > LONGEST_WINDOW_S:
            self._flaw("window", f"A rule looks back {LONGEST_WINDOW_S // 86_400} days at most.")
        return {} if self.flaws else read

    @property
    def own(self) -> bool:
        return self.kind in CUSTOM_KINDS

    def _values(self) -> dict[str, Any]:
        numbers = {name: self._number(name, text) for name, text in self.numbers.items()}
        lists = {
            name: [word.strip() for word in text.split(",") if word.strip()]
            for name, text in self.lists.items()
        }
        if self.flaws:
            return {}
        try:
            return read_values(self.kind, numbers | lists)
        except AuditFlaw as flaw:
            self._flaw("values", str(flaw))
            return {}

    def _number(self, name: str, text: str) -> float:
        bounds = KINDS[self.kind].numbers[name]
        try:
            return int(text) if isinstance(bounds.usual, int) and "." not in text else float(text)
        except (ValueError, OverflowError):
            self._flaw("values", f"{name} is a number from {bounds.least} to {bounds.most}.")
            return 0

    def _whole(self, name: str, text: str, most: int) -> int:
        if text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most:
            return int(text)
        self._flaw(name, f"Give a whole number from 1 to {most:,}.")
        return 0

    def _seconds(self) -> int:
        seconds = dict(_UNITS).get(self.unit)
        if seconds is None:
            self._flaw("window", "Choose seconds, minutes or hours.")
        return seconds or 0

    def _severity(self) -> str:
        if self.severity not in {*Severity}:
            self._flaw("severity", "Choose how bad it is.")
        return self.severity

    def _flaw(self, name: str, words: str) -> None:
        self.flaws.setdefault(name, []).append(words)
