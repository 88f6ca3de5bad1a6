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
from tools.ui.access import PageRequest
from tools.ui.licenses import licenses
from tools.ui.settings import sandbox
from tools.ui.settings.sandbox import Notice
from tools.web.probes import CHECKS

_WORDS = {"good": "good", "warn": "look", "bad": "wrong"}
_STATUSES = {"good": "success", "warn": "pending", "bad": "denied"}  # colors of a chip


@dataclass(frozen=True)
class ComponentRow:
    name: str
    word: str
    status: str
    text: str
    url: str


def lines(request: PageRequest) -> Iterator[ComponentRow]:
    """The lines without pending changes and held calls, which the home page counts itself."""
    user = request.user
    yield _line("Health", _health(), "readyz")
    if sandbox.manages(user):
        yield _line("Sandbox", sandbox.in_short(), "sandbox")
        yield _line("Accounts", _accounts(), "settings")
    if user.has_perm("tools.view_licensetier"):
        yield _line("Licence", licenses.in_short(request), "licenses")
    if user.has_perm("tools.change_user"):
        yield _line("People", _second_factors(), "factors")
    if user.has_perm("audit.view_auditrecord"):
        yield _line("Sealing", _sealing(user.organization.slug), "audit")


def _line(name: str, said: Notice, to: str) -> ComponentRow:
    return ComponentRow(name, _WORDS[said.tone], _STATUSES[said.tone], said.text, reverse(to))


def _health() -> Notice:
    """The checks of `/readyz`; they name nothing of an organization."""
    answers = {name: check() for name, check in CHECKS.items()}
    wrong = [answer for answer in answers.values() if answer != "ok"]
    if not wrong:
        return Notice("good", f"{', '.join(answers).capitalize()}: all answer.")
    return Notice("bad", f"{'; '.join(wrong)}.")


def _accounts() -> Notice:
    """Whether this process and the others of `manage.py up` run under separate OS accounts."""
    missing = missing_separation()
    if missing:
        return Notice("warn", missing)
    said = "Web, worker, sealer, stores and sandbox each have an account of their own."
    return Notice("good", said)


def _second_factors() -> Notice:
    must = settings.MFA_REQUIRED
    if must == second_factors.NOBODY:
        said = "Nobody must have a second factor; MFA_REQUIRED=privileged asks it of who decides."
        return Notice("warn", said)
    who = "Everybody" if must == second_factors.EVERYBODY else "Who decides or administers"
    return Notice("good", f"{who} must have a second factor.")


def _sealing(organization: str) -> Notice:
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
