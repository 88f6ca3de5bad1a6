"""`/audit/alerts/rules/`: alert rules. They hold for every organization of the installation, so
only superusers change them; a preview counts matches in the user's own organization."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from audit.alerts import alert_rules, alerts
from audit.alerts.alert_rules import preview_rule
from audit.alerts.rule_kinds import CUSTOM_KINDS
from audit.errors import AuditFlaw
from audit.events import Event, Outcome, Severity
from audit.models import AlertRule
from tools.ui.audit.rule_form import KINDS_IN_WORDS, AlertRuleForm
from tools.ui.audit.spans import span
from tools.ui.audit.views import PERMISSION, actor_of
from tools.web.proof import Proof, proof

LIST, ONE = "audit/rules.html", "audit/rule.html"


@never_cache
@require_safe
@login_required
@permission_required(PERMISSION, raise_exception=True)
def rule_list(request: HttpRequest) -> HttpResponse:
    """Each rule with the number of open alerts of the user's organization."""
    open_alerts = alerts.open_by_rule(actor_of(request).organization)
    rows = [*AlertRule.objects.order_by("name"), *alert_rules.FIXED_RULES]
    context = {
        "rules": [(row, span(row.window_s), open_alerts.get(row.name, 0)) for row in rows],
        "alerts": sum(open_alerts.values()),
        "may_change": _superuser(request),
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
    form = AlertRuleForm.given(given, kind) if kind in CUSTOM_KINDS else _blank()
    if request.method == "POST" and not _counts(request):
        return _made(request, form)
    return _shown(request, form, asked="kind" in given)


@proof(Proof.NEEDED)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def rule_edit(request: HttpRequest, rule_id: int) -> HttpResponse:
    """GET with the form's fields previews how many records the rule would have matched."""
    _check_superuser(request)
    rule = get_object_or_404(AlertRule, pk=rule_id)
    if request.method == "POST" and not _counts(request):
        return _changed(request, rule, AlertRuleForm.given(request.POST, rule.kind))
    given = request.POST or request.GET
    drafted = "window" in given
    form = AlertRuleForm.given(given, rule.kind) if drafted else AlertRuleForm.of_rule(rule)
    return _shown(request, form, rule, asked=True)


def _made(request: HttpRequest, form: AlertRuleForm) -> HttpResponse:
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
    return _shown(request, form, asked=True, status=400)


def _changed(request: HttpRequest, rule: AlertRule, form: AlertRuleForm) -> HttpResponse:
    fields = form.fields()
    if fields:
        try:
            alert_rules.change_rule(rule=rule, by=actor_of(request), **fields)
        except AuditFlaw as flaw:
            form.flaws.setdefault(flaw.field or "whole", []).append(str(flaw))
        else:
            messages.success(request, f"{rule.name} is changed.")
            return redirect("alert-rules")
    return _shown(request, form, rule, asked=True, status=400)


def _shown(
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
        "caught": _caught(organization, form, fields) if fields else None,
        "alerts": alerts.alerts_of(organization).open().count(),
    }
    part = request.headers.get("HX-Target") == "caught"
    return render(
        request, f"{ONE}#caught" if part else ONE, context, status=200 if part else status
    )


def _caught(organization: str, form: AlertRuleForm, fields: dict[str, Any]) -> Any:
    return preview_rule(
        organization=organization,
        kind=form.kind,
        window_s=fields["window_s"],
        least=fields["least"],
        values=fields["values"],
    )


def _blank() -> AlertRuleForm:
    return AlertRuleForm(CUSTOM_KINDS[0], lists={"codes": "", "reasons": "", "outcomes": ""})


def _counts(request: HttpRequest) -> bool:
    """Whether only the preview is requested, from a browser without scripts. Saves nothing."""
    return request.POST.get("do") == "count"


def _superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def _check_superuser(request: HttpRequest) -> None:
    if not _superuser(request):
        raise PermissionDenied
