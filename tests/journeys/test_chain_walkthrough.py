"""What `docs/chains.md` leads a newcomer through, read from there and done as it says.

A chain fetches a page from a local web server, validates it, stores what it tells of as entities,
searches them, and sends a message when a second person has agreed. Other than on the page are only
the port, the people's names and the organization, as the tests share one product.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command

from tests.conditions import until
from tests.crib import CHECKOUT, free_port
from tests.journeys.reader import Reader
from tools.models import User

PAGE = (CHECKOUT / "docs" / "chains.md").read_text("utf-8")
WALK = PAGE.partition("## A chain in ten minutes")[2].partition("## What a chain may say")[0]
PASSWORD = "an apple a day"
WRONG = '[{"name": 1}]'


class Walk(str):
    """The words of the page, with the names of this test."""

    def block(self, kind: str, beginning: str) -> str:
        blocks = re.findall(r"```(\w+)\n(.*?)```", self, re.DOTALL)
        return next(text for one, text in blocks if one == kind and beginning in text)

    def value(self, label: str) -> str:
        """What the page has written into the field of this label."""
        found = re.search(rf"\*{label}\* is `([^`]+)`", " ".join(self.split()))
        assert found is not None, f"the page says nothing of {label}"
        return found[1]

    def says(self, *words: str) -> tuple[str, ...]:
        """These links or buttons are named on the page."""
        text = " ".join(self.split())
        assert [one for one in words if f"*{one}*" not in text] == []
        return words

    def call(self, ending: str) -> tuple[str, Any]:
        found = dict(re.findall(r"as \$API/(\S+) --data '(.*?)'", self, re.DOTALL))
        return next((path, json.loads(body)) for path, body in found.items() if ending in path)


@pytest.fixture
def walk(admin_user: User) -> Walk:
    second = f"second-{uuid4().hex[:8]}"
    text = WALK.replace("8099", str(free_port()))
    text = text.replace("`admin`", f"`{admin_user.username}`")
    text = text.replace("[admin]", f"[{admin_user.username}]")
    return Walk(text.replace("--username second", f"--username {second}"))


@pytest.fixture
def lists(walk: Walk, tmp_path: Path) -> Iterator[Path]:
    """The web server of the page and its folder."""
    *before, serving = walk.block("sh", "http.server").strip().split("\n")
    subprocess.run("\n".join(before), shell=True, check=True, cwd=tmp_path)
    command = shlex.split(serving.removesuffix("&"))
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as server:
        yield tmp_path / "elements"
        server.terminate()


@pytest.fixture
def second(crib: Any, walk: Walk, admin_user: User, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """The second person, made by the page's command; in the organization of this test."""
    command = shlex.split(walk.block("sh", "createsuperuser"))
    assert command[:2] == [".venv/bin/python", "manage.py"]
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command(*command[2:], interactive=False)
    name = command[command.index("--username") + 1]
    User.objects.filter(username=name).update(organization=admin_user.organization)
    return Reader(crib.url, name, PASSWORD)


@pytest.fixture
def ready(
    crib: Any, committed: None, admin_user: User, walk: Walk, lists: Path, second: Reader
) -> Reader:
    """The administrator, with all that the chain stands on, and the chain."""
    reader = Reader(crib.url, admin_user.username, "correct horse")
    slug = admin_user.organization.slug
    reader.follow(*walk.says("Administration", "Organizations"))
    reader.open(f"/admin/tools/organization/?q={slug}")
    reader.follow(slug)
    (hosts,) = walk.says("Hosts of web_fetch")
    reader.press(*walk.says("Save"), {hosts: walk.block("json", '"ports"').strip()})
    reader.follow(*walk.says("Catalog", "Schemas", "New schema"))
    schema = {"Name": walk.value("Name"), "Schema": walk.block("json", '"items"')}
    reader.press(*walk.says("Keep the schema"), schema)
    reader.follow(*walk.says("Messages", "Channels", "New channel", "inbox"))
    channel = Walk(walk.partition("Where messages go")[2])
    values = {
        "Name": channel.value("Name"),
        "Allowed recipients": channel.value("Allowed recipients"),
    }
    reader.press(*walk.says("Create the channel"), values)
    reader.follow(*walk.says("Chains", "Write a chain"))
    reader.press(*walk.says("Keep the chain"), {"The chain": walk.block("yaml", "keep_elements")})
    reader.follow(*walk.says("Call"))
    return reader


def values(reader: Reader, walk: Walk) -> dict[str, str]:
    """What the page gives the chain, by the labels of its fields."""
    labels = {name: f"{name} string" for name in ("url", "ask")}
    return {label: walk.value(name) for name, label in labels.items()}


def start_chain(reader: Reader, walk: Walk) -> None:
    """By the form of the chain's page; the reader looks at the run."""
    reader.press(*walk.says("Run keep_elements"), values(reader, walk))
    reader.follow(*walk.says("Open the execution"))


def sees(reader: Reader, words: str) -> bool:
    reader.open(reader.url)
    return words in reader.html


def approves(reader: Reader, walk: Walk) -> None:
    reader.follow(*walk.says("Confirmations"))
    until(lambda: sees(reader, "1 found for xenon"))
    reader.press(*walk.says("Approve"))
    assert "send_message may run." in reader.html


@pytest.mark.part("walks")
def test_the_page_leads_to_entities_and_a_message_that_a_second_person_allowed(ready, walk, second):
    ready.press(*walk.says("Rehearse it"), values(ready, walk))
    assert "What it would do" in ready.html and "It would be refused" not in ready.html
    assert "A person must agree" in ready.html
    start_chain(ready, walk)
    until(lambda: sees(ready, "waits for a person"))
    assert ready.html.count('data-status="Success"><title>') == 4  # steps of the drawing
    approves(second, walk)
    until(lambda: sees(ready, "Completed"))
    assert ready.html.count('data-status="Success"><title>') == 5 and ">Xenon</pre>" in ready.html
    ready.follow(*walk.says("Inbox"))
    assert "1 found for xenon" in ready.html
    ready.follow(*walk.says("Knowledge"))
    ready.press("Apply", {"Words": "xenon"})
    assert "Xenon" in ready.html


@pytest.mark.part("walks")
def test_a_script_does_the_same(ready, walk, second, admin):
    path, body = walk.call("/rehearse")
    steps = admin("POST", f"/api/v1/{path}", body).json()["steps"]
    assert not any(step["refused"] for step in steps) and steps[-1]["confirmation"]
    path, body = walk.call("/execute")
    run = admin("POST", f"/api/v1/{path}", body).json()["run_id"]
    approves(second, walk)
    done = admin("GET", f"/api/v1/chain-runs/{run}?wait_s=30").json()
    assert (done["status"], done["execution"]["output"]) == ("Success", "Xenon")
    assert {step["place"] for step in done["steps"]} == {
        "page", "check", "keep/0", "keep/1", "find", "tell",
    }  # fmt: skip
    with admin.events(f"/api/v1/executions/{run}/events") as events:
        kinds = [event["event"] for event in events]
    assert kinds[0] == "Started" and kinds[-1] == "Completed"


@pytest.mark.part("walks")
def test_a_wrong_list_stores_nothing_and_sends_no_message(ready, walk, lists):
    (lists / "list.json").write_text(WRONG)
    start_chain(ready, walk)
    until(lambda: sees(ready, "OUTPUT_MISSING"))
    assert ready.html.count('data-status="Success"><title>') == 2
    ready.follow("Inbox")
    assert "Nothing here" in ready.html


def test_the_chain_of_the_page_is_the_example():
    example = (CHECKOUT / "examples" / "keep_elements.yaml").read_text("utf-8")
    assert Walk(WALK).block("yaml", "keep_elements") == example
