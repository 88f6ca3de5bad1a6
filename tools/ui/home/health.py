"""The system's health for the home page: a line per subject, with a status and a link to its page,
for users who may see that page."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.urls import reverse

from audit.log import log_status
from config.local.unix_accounts import missing_separation
from tools.accounts.login import second_factors
from tools.ui.licenses import licenses
from tools.ui.settings import sandbox
from tools.ui.settings.sandbox import Notice
from tools.web.pages import PageRequest
from tools.web.probes import CHECKS
from tools.worker import reaper

_STATUS_WORDS = {"good": "good", "warn": "look", "bad": "wrong"}
_CHIP_STATUSES = {"good": "success", "warn": "pending", "bad": "denied"}  # colors of a chip
_NO_HOUSEKEEPER = (
    "The housekeeper is silent: exports, deliveries of alerts and retention wait. Workers end"
    " orphaned calls meanwhile."
)


@dataclass(frozen=True)
class ComponentRow:
    name: str
    word: str
    status: str
    text: str
    url: str


def health_components(request: PageRequest) -> Iterator[ComponentRow]:
    """The lines without pending changes and held calls, which the home page counts itself."""
    user = request.user
    yield _component_row("Health", _probe_status(), "readyz")
    if sandbox.manages_tools(user):
        yield _component_row("Sandbox", sandbox.sandbox_summary(), "sandbox")
        yield _component_row("Accounts", _account_separation(), "settings")
    if user.has_perm("tools.view_licensetier"):
        yield _component_row("Licence", licenses.license_summary(request), "licenses")
    if user.has_perm("tools.change_user"):
        yield _component_row("People", _second_factor_policy(), "factors")
    if user.has_perm("audit.view_auditrecord"):
        yield _component_row("Sealing", _sealing_status(user.organization.slug), "audit")


def _component_row(name: str, said: Notice, to: str) -> ComponentRow:
    return ComponentRow(
        name, _STATUS_WORDS[said.tone], _CHIP_STATUSES[said.tone], said.text, reverse(to)
    )


def _probe_status() -> Notice:
    """The checks of `/readyz`, and whether the housekeeper works, which no call needs; they name
    nothing of an organization."""
    answers = {name: check() for name, check in CHECKS.items()}
    wrong = [answer for answer in answers.values() if answer != "ok"]
    if not wrong and reaper.announced_s() is None:
        return Notice("warn", _NO_HOUSEKEEPER)
    if not wrong:
        return Notice("good", f"{', '.join(answers).capitalize()}: all answer.")
    return Notice("bad", f"{'; '.join(wrong)}.")


def _account_separation() -> Notice:
    """Whether this process and the others of `manage.py up` run under separate OS accounts."""
    missing = missing_separation()
    if missing:
        return Notice("warn", missing)
    said = "Web, worker, sealer, stores and sandbox each have an account of their own."
    return Notice("good", said)


def _second_factor_policy() -> Notice:
    must = settings.MFA_REQUIRED
    if must == second_factors.NOBODY:
        said = "Nobody must have a second factor; MFA_REQUIRED=privileged asks it of who decides."
        return Notice("warn", said)
    who = "Everybody" if must == second_factors.EVERYBODY else "Who decides or administers"
    return Notice("good", f"{who} must have a second factor.")


def _sealing_status(organization: str) -> Notice:
    found = log_status.log_status(organization)
    if found.halted:
        return Notice("bad", f"The log is halted: {found.halted}")
    if found.signed_at is None:
        return Notice("warn", "No checkpoint has been signed yet.")
    behind = found.unsealed >= log_status.MOST_UNSEALED
    waits = f"{found.unsealed:,} {'or more ' if behind else ''}not sealed yet"
    said = waits if found.unsealed else "every record is sealed"
    tone = "warn" if behind else "good"
    return Notice(tone, f"Last checkpoint {naturaltime(found.signed_at)}, {said}.")
