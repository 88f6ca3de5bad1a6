"""`/audit/alerts/rules/`: alert rules and the form of a rule. They apply to every organization of
the installation, so only superusers change them; a preview counts matches in the user's own
organization.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from audit.alerts import alert_rules, alerts
from audit.alerts.alert_rules import (
    LONGEST_WINDOW_S,
    MOST_RECORDS,
    RulePreview,
    preview_rule,
    read_values,
)
from audit.alerts.rule_kinds import CUSTOM_KINDS, KINDS
from audit.errors import AuditFlaw
from audit.events import Event, Outcome, Severity
from audit.models import AlertRule
from audit.models.alerts import worst_first
from tools.accounts.callers import actor_of
from tools.errors import Forbidden, Malformed, NotFound
from tools.ui.audit.audit_records import PERMISSION
from tools.web.form_fields import DurationField, NamesField, WholeField, choices, duration_words
from tools.web.forms import ActionForm
from tools.web.listing import Column, Filters, Listing, search_field, select_field
from tools.web.pages import PageRequest, form_page, page
from tools.web.reauthentication import Proof

KINDS_IN_WORDS = {
    "by_actor": "Counts the records of each who acts",
    "by_subject": "Counts the records of each who acts and what it is about",
    "every_group": "Counts requests for every group",
    "hasty_approval": "Counts approvals given faster than a person reads",
    "possible_effect": "Finds calls that may have had an effect and said nothing",
    "unusual_usage": "Compares calls with those of the last week",
    "first_use": "Finds the first use of a tool",
    "unusual_group": "Finds groups not used for 30 days",
    "unusual_step": "Finds steps of a workflow never taken before",
}
LIST, ONE = "audit/alert_rules.html", "audit/alert_rule.html"
_PLACEHOLDERS = {"codes": "TOOL.DENY", "outcomes": "denied", "reasons": "group_not_granted"}


class AlertRuleForm(ActionForm):
    """The numbers and lists are those of the rule's kind; a new rule also has a name and a kind."""

    row: AlertRule | None
    error_fields = {"window_s": "window", "values": "list.codes"}
    name = forms.CharField(
        label="Name", max_length=40, help_text="Letters, digits, hyphens and underscores."
    )
    kind = forms.ChoiceField(
        label="What it does", choices=[(kind, KINDS_IN_WORDS[kind]) for kind in CUSTOM_KINDS]
    )
    description = forms.CharField(
        label="It says",
        max_length=300,
        required=False,
        help_text="Behind the name of the caller that it is about.",
        widget=forms.TextInput({"placeholder": "asked for something it may not have"}),
    )
    severity = forms.ChoiceField(
        label="Severity", choices=choices(Severity), initial=Severity.WARNING
    )
    least = WholeField(label="From so many records", min_value=1, max_value=MOST_RECORDS, initial=1)
    window = DurationField(label="Within", most_s=LONGEST_WINDOW_S, initial=300)
    enabled = forms.BooleanField(label="It is on", required=False, initial=True)

    def __init__(self, request: PageRequest, row: AlertRule | None = None) -> None:
        super().__init__(request, row, initial=_given_kind(request, row))
        if request.method == "GET" and "window" in request.GET:  # only previewed
            self.data, self.is_bound = request.GET, True

    def build(self) -> None:
        known = KINDS[self.row.kind if self.row else CUSTOM_KINDS[0]]
        if self.row is not None:
            for name in ("name", "kind", "description"):
                del self.fields[name]
        for name, bounds in known.numbers.items():
            field = WholeField if isinstance(bounds.usual, int) else forms.FloatField
            self.fields[f"number.{name}"] = field(
                label=name.capitalize(),
                min_value=bounds.least,
                max_value=bounds.most,
                initial=bounds.usual,
                widget=forms.TextInput({"inputmode": "decimal"}),
            )
        for name in known.lists:
            known_names = {"list": f"known-{name}"} if name != "reasons" else {}
            widget = forms.TextInput({"placeholder": _PLACEHOLDERS[name], **known_names})
            self.fields[f"list.{name}"] = NamesField(
                label=name.capitalize(),
                help_text="Commas between them; none is any.",
                widget=widget,
            )
        self.order_fields([name for name in self.fields if name != "enabled"])

    def lock(self) -> None:
        if self.row is not None:
            AlertRule.objects.select_for_update().get(pk=self.row.pk)
            self.row.refresh_from_db()

    def stored_values(self) -> dict[str, Any]:
        assert self.row is not None
        known, values = KINDS[self.row.kind], self.row.values
        numbers = {
            f"number.{name}": values.get(name, bounds.usual)
            for name, bounds in known.numbers.items()
        }
        lists = {f"list.{name}": list(values.get(name, ())) for name in known.lists}
        plain = {name: getattr(self.row, name) for name in ("severity", "least", "enabled")}
        return {**plain, "window": self.row.window_s, **numbers, **lists}

    def act(self, changes: dict[str, Any]) -> AlertRule:
        fields, by = _rule_fields(self.cleaned_data), actor_of(self.request.caller)
        try:
            if self.row is not None:
                return alert_rules.change_rule(rule=self.row, by=by, **fields)
            named = {name: changes[name] for name in ("name", "kind", "description")}
            return alert_rules.create_rule(by=by, **named, **fields)
        except AuditFlaw as flaw:
            errors = [{"field": flaw.field, "message": str(flaw)}]
            raise Malformed(str(flaw), errors=errors) from None

    def matches(self) -> RulePreview | None:
        """Of what is typed, else of the rule as it is stored; None where neither can be used."""
        if self.is_bound and not self.is_valid():
            return None
        if not self.is_bound and self.row is None:
            return None
        values = self.cleaned_data if self.is_bound else self.stored
        kind = self.row.kind if self.row else values["kind"]
        fields = _rule_fields(values)
        try:
            read = read_values(kind, fields["values"])
        except AuditFlaw:
            return None
        return preview_rule(
            organization=self.request.caller.organization,
            kind=kind,
            window_s=fields["window_s"],
            least=fields["least"],
            values=read,
        )


@dataclass(frozen=True)
class AlertRuleRow:
    rule: AlertRule
    within: str
    open: int  # alerts


class RuleFilters(Filters):
    q = search_field("Name or what it says")
    severity = select_field("Severity", [*Severity])


class RuleListing(Listing):
    """Each rule with the number of open alerts of the user's organization. The rules that have no
    row, and are always on, are apart."""

    view, template, noun, filters = "alert-rules", LIST, "rule", RuleFilters
    order, page_size = "rule", 50
    columns = [
        Column("rule", "Rule", lambda row: row.rule.name, sort="name"),
        Column("says", "It says", lambda row: row.rule.description),
        Column("enabled", "", lambda row: row.rule.enabled),
        Column("severity", "Severity", lambda row: row.rule.severity, sort="rank"),
        Column("from", "From", lambda row: row.rule.least),
        Column("within_s", "Within", lambda row: row.rule.window_s, sort="window_s"),
        Column("open", "Open", lambda row: row.open, css="number"),
    ]

    def rows(self) -> QuerySet[AlertRule]:
        rows = AlertRule.objects.annotate(rank=-worst_first())
        if words := self.values.get("q"):
            rows = rows.filter(Q(name__icontains=words) | Q(description__icontains=words))
        severity = self.values.get("severity")
        return rows.filter(severity=severity) if severity else rows

    def prepare(self, rows: list[AlertRule]) -> list[AlertRuleRow]:
        names = [row.name for row in rows]
        counts = alerts.open_by_rule(self.caller.organization, names)
        return [
            AlertRuleRow(row, duration_words(row.window_s), counts.get(row.name, 0)) for row in rows
        ]

    def context(self) -> dict[str, Any]:
        fixed = self.prepare([*alert_rules.FIXED_RULES])
        return {"may_change": self.caller.is_superuser, "fixed": fixed}


@page(PERMISSION)
def rule_list(request: PageRequest) -> HttpResponseBase:
    return RuleListing(request).respond()


@form_page(Proof.NEEDED)
def rule_new(request: PageRequest) -> HttpResponseBase:
    _require_superuser(request)
    form = AlertRuleForm(request)
    if _is_preview(request) or not form.save():
        return _render_rule(request, form)
    return form.redirect(f"{form.result.name} is watched for.", "alert-rules")


@form_page(Proof.NEEDED)
def rule_edit(request: PageRequest, rule_id: int) -> HttpResponseBase:
    """GET with the form's fields previews how many records the rule would have matched."""
    _require_superuser(request)
    rule = AlertRule.objects.filter(pk=rule_id).first()
    if rule is None:
        raise NotFound("There is no such rule.", code="alert_rule_not_found")
    form = AlertRuleForm(request, rule)
    if _is_preview(request) or not form.save():
        return _render_rule(request, form, rule)
    return form.redirect(f"{rule.name} is changed.", "alert-rules")


def _render_rule(
    request: PageRequest, form: AlertRuleForm, rule: AlertRule | None = None
) -> HttpResponse:
    context: dict[str, Any] = {
        "rule": rule,
        "kind_words": KINDS_IN_WORDS[rule.kind if rule else CUSTOM_KINDS[0]],
        "codes": [*Event],
        "outcomes": [*Outcome],
        "caught": form.matches(),
    }
    part = request.htmx and request.htmx.target == "caught"
    return form.show(f"{ONE}#matches" if part else ONE, context)


def _rule_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a rule of those of the form; an empty list is none."""
    numbers = {name: value for name, value in values.items() if name.startswith("number.")}
    lists = {name: value for name, value in values.items() if name.startswith("list.") and value}
    return {
        **{name: values[name] for name in ("severity", "least", "enabled")},
        "window_s": values["window"],
        "values": {name.partition(".")[2]: value for name, value in (numbers | lists).items()},
    }


def _given_kind(request: PageRequest, row: AlertRule | None) -> dict[str, str]:
    kind = request.GET.get("kind", "")
    return {"kind": kind} if row is None and kind in CUSTOM_KINDS else {}


def _is_preview(request: PageRequest) -> bool:
    """Whether only the preview is requested. Saves nothing."""
    return request.method != "POST" or request.POST.get("do") == "count"


def _require_superuser(request: PageRequest) -> None:
    if not request.caller.is_superuser:
        raise Forbidden("Only a superuser changes alert rules.", code="not_permitted")
