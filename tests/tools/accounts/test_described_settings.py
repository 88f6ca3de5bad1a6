"""The settings page describes the operator's settings as the documentation does."""

import re
from pathlib import Path

from django.conf import settings

from tools.accounts.environment_settings import HIDDEN, ON_PAGE, SECTIONS, VISIBLE, setting_statuses

ROW = re.compile(r"^\| `([A-Z_]+)` \| (.*?) \| (.*) \|$", re.MULTILINE)


def test_every_documented_variable_is_described_as_it_is_documented() -> None:
    text = Path(settings.BASE_DIR, "docs/operations.md").read_text().replace("; see below", "")
    documented = {name: (default, does) for name, default, does in ROW.findall(text)}
    described = {one.name: (one.default, one.does) for every in SECTIONS.values() for one in every}
    assert described == {
        name: (default.replace("`", ""), does.replace("`", ""))
        for name, (default, does) in documented.items()
    }


def test_every_setting_that_is_told_is_described() -> None:
    every = {one.attribute or one.name for rows in SECTIONS.values() for one in rows}
    assert set(VISIBLE) <= every
    assert not ON_PAGE & set(HIDDEN)


def test_only_what_evidence_holds_has_a_value() -> None:
    for rows in setting_statuses().values():
        for one in rows:
            assert one.shown == ((one.described.attribute or one.described.name) in ON_PAGE)
