"""`/audit/alerts/rules/`: alert rules and the form of a rule. They apply to every organization of
the installation, so only superusers change them; a preview counts matches in the user's own
organization.
"""

from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from audit.alerts import alert_rules, alerts
from audit.alerts.alert_rules import LONGEST_WINDOW_S, MOST_RECORDS, preview_rule, read_values
from audit.alerts.rule_kinds import CUSTOM_KINDS, KINDS
from audit.errors import AuditFlaw
from audit.events import Event, Outcome, Severity
from audit.models import AlertRule
from tools.ui.audit.audit_records import PERMISSION, actor_of
from tools.web.reauthentication import Proof, proof

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
LIST, ONE = "audit/alert_rules.html", "audit/alert_rule.html"
_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
_DURATION_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


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
    def from_data(cls, data: QueryDict, kind: str) -> "AlertRuleForm":
        def read_text(name: str) -> str:
            return str(data.get(name, "")).replace("\x00", "").strip()[:2_000]

        known = KINDS[kind]
        return cls(
            kind, read_text("name"), read_text("description")[:300], read_text("severity"),
            read_text("window"), read_text("unit"), read_text("least"),
            data.get("enabled") == "yes",
            {name: read_text(f"number.{name}") for name in known.numbers},
            {name: read_text(f"list.{name}") for name in known.lists},
        )  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """The fields of the rule; empty where the form is invalid, with `flaws` set."""
        window_s = (
            self._parse_whole_number("window", self.window, LONGEST_WINDOW_S) * self._seconds()
        )
        read: dict[str, Any] = {
            "severity": self._severity(),
            "window_s": window_s,
            "least": self._parse_whole_number("least", self.least, MOST_RECORDS),
            "values": self._values(),
            "enabled": self.enabled,
        }
        if not self.flaws and window_s > LONGEST_WINDOW_S:
            self._flaw("window", f"A rule looks back {LONGEST_WINDOW_S // 86_400} days at most.")
        return {} if self.flaws else read

    @property
    def is_custom(self) -> bool:
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

    def _parse_whole_number(self, name: str, text: str, most: int) -> int:
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


def duration_words(seconds: int) -> str:
    for unit_s, unit in _DURATION_UNITS:
        if seconds % unit_s == 0:
            return f"{seconds // unit_s}\N{NO-BREAK SPACE}{unit}"
    return f"{seconds}\N{NO-BREAK SPACE}s"


@never_cache
@require_safe
@login_required
@permission_required(PERMISSION, raise_exception=True)
def rule_list(request: HttpRequest) -> HttpResponse:
    """Each rule with the number of open alerts of the user's organization."""
    open_alerts = alerts.open_by_rule(actor_of(request).organization)
    rows = [*AlertRule.objects.order_by("name"), *alert_rules.FIXED_RULES]
    context = {
        "rules": [
            (row, duration_words(row.window_s), open_alerts.get(row.name, 0)) for row in rows
        ],
        "alerts": sum(open_alerts.values()),
        "may_change": _is_superuser(request),
    }
    return render(request, LIST, context)


@proof(Proof.NEEDED)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def rule_new(request: HttpRequest) -> HttpResponse:
    _check_superuser(request)
    given = request.POST if request.method == "POST" else request.GET
    kind = given.get("kind", "")
    form = AlertRuleForm.from_data(given, kind) if kind in CUSTOM_KINDS else _blank_form()
    if request.method == "POST" and not _is_preview(request):
        return _create_rule(request, form)
    return _render_rule(request, form, asked="kind" in given)


@proof(Proof.NEEDED)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def rule_edit(request: HttpRequest, rule_id: int) -> HttpResponse:
    """GET with the form's fields previews how many records the rule would have matched."""
    _check_superuser(request)
    rule = get_object_or_404(AlertRule, pk=rule_id)
    if request.method == "POST" and not _is_preview(request):
        return _save_rule(request, rule, AlertRuleForm.from_data(request.POST, rule.kind))
    given = request.POST or request.GET
    drafted = "window" in given
    form = AlertRuleForm.from_data(given, rule.kind) if drafted else AlertRuleForm.of_rule(rule)
    return _render_rule(request, form, rule, asked=True)


def _create_rule(request: HttpRequest, form: AlertRuleForm) -> HttpResponse:
    fields = form.fields()
    if fields:
        try:
            alert_rules.create_rule(
                name=form.name, kind=form.kind, by=actor_of(request),
                description=form.description, **fields,
            )  # fmt: skip
        except AuditFlaw as flaw:
            form.flaws.setdefault(flaw.field or "whole", []).append(str(flaw))
        else:
            messages.success(request, f"{form.name} is watched for.")
            return redirect("alert-rules")
    return _render_rule(request, form, asked=True, status=400)


def _save_rule(request: HttpRequest, rule: AlertRule, form: AlertRuleForm) -> HttpResponse:
    fields = form.fields()
    if fields:
        try:
            alert_rules.change_rule(rule=rule, by=actor_of(request), **fields)
        except AuditFlaw as flaw:
            form.flaws.setdefault(flaw.field or "whole", []).append(str(flaw))
        else:
            messages.success(request, f"{rule.name} is changed.")
            return redirect("alert-rules")
    return _render_rule(request, form, rule, asked=True, status=400)


def _render_rule(
    request: HttpRequest,
    form: AlertRuleForm,
    rule: AlertRule | None = None,
    *,
    asked: bool,
    status: int = 200,
) -> HttpResponse:
    organization = actor_of(request).organization
    fields = form.fields() if asked and not form.flaws else {}
    context: dict[str, Any] = {
        "form": form,
        "rule": rule,
        "kind_words": KINDS_IN_WORDS[form.kind],
        "own_kinds": [(kind, KINDS_IN_WORDS[kind]) for kind in CUSTOM_KINDS],
        "severities": [*Severity],
        "units": ("seconds", "minutes", "hours"),
        "codes": [*Event],
        "outcomes": [*Outcome],
        "caught": _preview_matches(organization, form, fields) if fields else None,
        "alerts": alerts.alerts_of(organization).open().count(),
    }
    part = request.headers.get("HX-Target") == "caught"
    return render(
        request, f"{ONE}#matches" if part else ONE, context, status=200 if part else status
    )


def _preview_matches(organization: str, form: AlertRuleForm, fields: dict[str, Any]) -> Any:
    return preview_rule(
        organization=organization,
        kind=form.kind,
        window_s=fields["window_s"],
        least=fields["least"],
        values=fields["values"],
    )


def _blank_form() -> AlertRuleForm:
    return AlertRuleForm(CUSTOM_KINDS[0], lists={"codes": "", "reasons": "", "outcomes": ""})


def _is_preview(request: HttpRequest) -> bool:
    """Whether only the preview is requested, from a browser without scripts. Saves nothing."""
    return request.POST.get("do") == "count"


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def _check_superuser(request: HttpRequest) -> None:
    if not _is_superuser(request):
        raise PermissionDenied
