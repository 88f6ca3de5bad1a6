"""The page of the walls, and the notice on every other page where they are not all there."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from sandbox import doctor
from sandbox.daemon.trials.capability import AttackResult, Capability
from sandbox.daemon.trials.trial import SandboxChoice, Trial
from sandbox.machine import Facts, Signs
from sandbox.spec import Backend, IsolationLevel
from tests.ui.conftest import Grant
from tests.ui.pages import notes, text
from tools.runners.isolation import watch
from tools.ui.settings.sandbox import _NO_ANSWER, capability_notice

pytestmark = pytest.mark.django_db

NONE, STANDARD, STRICT, RESTRICTED = IsolationLevel
FACTS = Facts("v2", landlock_abi=7, signs=Signs())


def contained_attack(level: IsolationLevel, contained: bool = True) -> Trial:
    choice = SandboxChoice(level)
    return Trial(choice, (AttackResult("be root", level, choice.backend, contained, "uid 0"),))


def capability_with(*trials: Trial, facts: Facts = FACTS) -> Capability:
    usual = {level: contained_attack(level) for level in IsolationLevel}
    own = {one.choice.level: one for one in trials if one.choice.backend == Backend.PROCESS}
    rest = [one for one in trials if one.choice.backend != Backend.PROCESS]
    return doctor.conclude([*(usual | own).values(), *rest], facts)


NO_NAMESPACES = [
    Trial(SandboxChoice(level), failure="bwrap said no") for level in (STANDARD, STRICT, RESTRICTED)
]
DEGRADED = Trial(SandboxChoice(STANDARD, Backend.DEGRADED))
STATES = {
    "everything": (capability_with(), None),
    "no cgroups": (capability_with(facts=replace(FACTS, cgroup_mode="none")), "warn"),
    "up to Strict": (capability_with(contained_attack(RESTRICTED, contained=False)), "warn"),
    "no namespaces": (capability_with(*NO_NAMESPACES), "bad"),
    "nothing": (capability_with(contained_attack(NONE, contained=False), *NO_NAMESPACES), "bad"),
    "degraded": (
        capability_with(*NO_NAMESPACES, DEGRADED, facts=replace(FACTS, degraded_allowed=True)),
        "bad",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_the_notice_is_as_loud_as_what_is_missing(name: str) -> None:
    capability, tone = STATES[name]
    notice = capability_notice(capability)
    assert (notice and notice.tone) == tone
    if notice is not None:
        assert capability.reasons[0] in notice.text


@pytest.fixture
def _silent_sandboxd(settings: Any, tmp_path: Path) -> Iterator[None]:
    settings.SANDBOX_SOCKET = str(tmp_path / "none")
    watch.cache_clear()
    yield
    watch.cache_clear()


def test_the_page_shows_levels_backends_and_attacks(admin_client: Client) -> None:
    page = text(admin_client.get("/sandbox/"))
    for word in ("Restricted", "degraded", "Be root"):
        assert word in page
    assert {"control-groups", "slots"} <= set(notes(page)) and "silent" not in notes(page)


@pytest.mark.parametrize(
    "rights", [{"permissions": ["tools.change_tool"]}, {"fields": {"is_staff": True}}]
)
def test_users_who_change_tools_or_administer_see_the_page(
    client_of: Grant, rights: dict[str, Any]
) -> None:
    client = client_of(*rights.get("permissions", ()), **rights.get("fields", {}))
    assert client.get("/sandbox/").status_code == 200
    assert 'href="/sandbox/"' in text(client.get("/"))


@pytest.mark.usefixtures("_silent_sandboxd")
@pytest.mark.parametrize("address", ["/", "/executions/", "/audit/", "/admin/"])
def test_every_page_warns_managers_when_sandboxd_does_not_answer(
    admin_client: Client, address: str
) -> None:
    assert _NO_ANSWER in text(admin_client.get(address))


@pytest.mark.usefixtures("_silent_sandboxd")
def test_silence_is_a_page_too(admin_client: Client) -> None:
    response = admin_client.get("/sandbox/")
    assert response.status_code == 200
    assert "log/sandboxd.log" in notes(response)["silent"][0]


@pytest.mark.usefixtures("_silent_sandboxd")
def test_other_users_see_no_warning(client_of: Grant) -> None:
    assert _NO_ANSWER not in text(client_of().get("/"))
