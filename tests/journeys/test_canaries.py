"""Secrets of forty kinds go into real calls and come out of them, and are looked for afterwards.

They may stand in the row of the execution (`tools_execution`: its parameters, which it must run
with, its output and its error), in rows kept to answer the same request again, and in the answer to
the caller who sent them. A sandbox's traceback and a validator shorten what they quote, and half a
secret has no look: the error that is raised here is short. Nowhere else: not in evidence, nor in
exports of it, nor in what passes through Redis, nor in the logs of any process, nor on a page or in
an answer that others get.
"""

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import redis
from django.apps import apps
from django.conf import settings
from django.db import connection

from audit.models import AuditPayload
from audit.records import payloads
from tests import factories
from tests.journeys.client import Http
from tests.ui.pages import text
from tools.models import Execution

KEYS = [
    "password", "userPassword", "password1", "passwords", "passphrase", "client_secret", "api_key",
    "X-Api-Key", "accessKey", "private_key", "account_key", "signing-key", "encryption_key",
    "Authorization", "Set-Cookie", "credentials", "bearer", "refresh_token", "tokens", "session_id",
    "pin", "otp", "cvv", "ssn", "connectionString", "dsn",
]  # fmt: skip
RAISES = "def main(parameters):\n    raise ValueError(' '.join(parameters['held']['looks'][:6]))\n"
ENCODED = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")


def _card() -> str:
    """An unused number, with the right check digit."""
    digits = "4" + f"{uuid4().int % 10**14:014}"
    doubled = sum(sum(divmod(int(digit) * 2, 10)) for digit in digits[::-2])
    plain = sum(int(digit) for digit in digits[-2::-2])
    return f"{digits}{-(doubled + plain) % 10}"


@dataclass(frozen=True)
class Canaries:
    """Of one test alone, so that every table and log of the crib can be searched for them."""

    word: str = field(default_factory=lambda: f"c4nary{uuid4().hex[:10]}")
    card: str = field(default_factory=_card)

    @property
    def basic(self) -> str:
        return base64.b64encode(f"{self.word}:{self.word}".encode()).decode()

    @property
    def spaced(self) -> str:
        return " ".join(self.card[at : at + 4] for at in range(0, 16, 4))

    @property
    def looks(self) -> list[str]:
        word = self.word
        pem = f"-----BEGIN PRIVATE KEY-----\n{word}\n-----END PRIVATE KEY-----"
        return [
            f"tcr_{word[:8]}_{word}{word}", f"ghp_{word}", f"github_pat_{word}", f"glpat-{word}",
            f"xoxb-{word}", f"sk-{word}", f"sk_live_{word}", f"AKIA{word.upper()}", pem,
            f"AIza{word}{word}xyz", f"SG.{word}.{word}", f"npm_{word}{word}", f"hf_{word}{word}",
            f"pypi-{word}{word}{word}", f"eyJ{word}.{word}.{word}", f"Bearer {word}",
            f"Basic {self.basic}", f"postgresql://user:{word}@db.example/x",
            f"https://hooks.slack.com/services/{word}{word}", f"password={word}", f"token={word}",
            json.dumps({"api_key": word}), self.card, self.spaced,
        ]  # fmt: skip

    @property
    def parameters(self) -> dict[str, Any]:
        by_key = {key: f"{self.word}-{key}" for key in KEYS} | {"tokens": [self.word]}
        long = "x " * 990 + f"ghp_{self.word}{self.word} " + "y " * 500
        held = {"looks": self.looks, "number": int(self.card), "long": long, "by_key": by_key}
        return {"diagnosis": self.word, "deep": {"diagnosis": [self.word]}, "held": held}

    def found_in(self, content: str | bytes) -> list[str]:
        text = content.decode(errors="replace") if isinstance(content, bytes) else content
        needles = [self.word, self.basic, self.card, self.spaced]
        return [needle for needle in needles if needle.lower() in text.lower()]


@contextmanager
def overheard() -> Iterator[list[bytes]]:
    """Every command that Redis is given meanwhile, and what is base64 in it, as it reads."""
    commands, end = list[bytes](), uuid4().hex
    ready = threading.Event()

    def listen() -> None:
        with redis.Redis.from_url(settings.REDIS_URL) as client, client.monitor() as monitor:
            ready.set()
            for heard in monitor.listen():
                command = heard["command"].encode()
                commands.extend([command, *map(_decoded, ENCODED.findall(command))])
                if end.encode() in command:
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    assert ready.wait(20)
    try:
        yield commands
    finally:
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            client.echo(end)
        listener.join(20)


def _decoded(found: bytes) -> bytes:
    return base64.b64decode(found[: len(found) // 4 * 4])


def audit_rows() -> Iterator[tuple[str, str]]:
    with connection.cursor() as cursor:
        for model in apps.get_app_config("audit").get_models():
            table = model._meta.db_table
            cursor.execute(f"SELECT t::text FROM {table} t")
            yield from ((table, row) for (row,) in cursor.fetchall())


@pytest.fixture
def canaries(organization: Any) -> Canaries:
    secret = {"x-sensitive": True}
    schema = {"type": "object", "properties": {
        "diagnosis": {"type": "string", **secret}, "deep": {"type": "object"},
        "held": {"type": "object"},
    }}  # fmt: skip
    for name, more in (("sings", {}), ("falls", {"implementation": {"source": RAISES}})):
        factories.tool(organization, name, parameters=[], input_schema=schema, **more)
    return Canaries()


@pytest.fixture
def sung(canaries: Canaries, http: Http) -> Callable[[], list[Any]]:
    """Calls that succeed, fail, are refused and are wrong, all with every canary."""

    def sing() -> list[Any]:
        parameters = canaries.parameters
        broken = json.dumps({"parameters": parameters})[:-1].encode()
        return [
            http.execute("sings", parameters),
            http.execute("falls", parameters),
            http.execute("sings", {**parameters, "held": canaries.looks}),
            http.execute("sings", parameters, group=["admin"]),
            # No schema says of a tool that is not there which members are sensitive.
            http.execute("ghost", {"held": parameters["held"]}),
            http("POST", "/api/v1/tools/sings/execute", broken),
        ]

    return sing


def test_secrets_of_calls_are_in_no_evidence_no_export_no_log_and_not_in_redis(
    crib, admin, canaries, sung, organization
):
    assert len(canaries.looks) + len(KEYS) >= 40
    with overheard() as commands:
        answers = sung()
    assert canaries.found_in(answers[0].content), "the caller has their own result"
    assert [answer.status_code for answer in answers[3:]] == [403, 404, 400]
    kept = AuditPayload.objects.filter(organization=organization.slug)
    opened = [json.dumps(payloads.open_payload(row.pk), ensure_ascii=False) for row in kept]
    assert len([one for one in opened if "[redacted " in one]) >= 4
    assert not [one for one in opened if canaries.found_in(one)]
    assert not [table for table, row in audit_rows() if canaries.found_in(row)]
    for name in ("jsonl", "csv", "ocsf"):
        export = admin("GET", f"/api/v1/audit/export?format={name}")
        assert export.status_code == 200 and b"TOOL.END" in export.content
        assert not canaries.found_in(export.content), name
    assert commands and not [command for command in commands if canaries.found_in(command)]
    for log in (crib.data / "log").iterdir():
        assert not canaries.found_in(log.read_bytes()), log


@pytest.mark.part("walks")
def test_secrets_of_calls_are_on_no_page_and_in_no_answer_of_others(
    crib, admin, admin_client, canaries, sung, organization
):
    sung()
    other = Http(crib.url, factories.token(factories.agent(organization).service_account))
    calls = Execution.objects.filter(organization=organization)
    assert {call.status for call in calls} >= {"Success", "Failed"}
    for call in calls:
        refused = other("GET", f"/api/v1/executions/{call.pk}")
        assert refused.status_code == 404 and not canaries.found_in(refused.content)
        for address in (
            f"/executions/{call.pk}/", f"/admin/tools/execution/{call.pk}/change/",
            f"/audit/?execution={call.pk}",
        ):  # fmt: skip
            page = admin_client.get(address)
            assert page.status_code == 200
            page_text = text(page)
            at = page_text.lower().find(canaries.word)
            assert not canaries.found_in(page_text), (
                address,
                page_text[max(0, at - 150) : at + 60],
            )
    for record in admin("GET", "/api/v1/audit/records").json()["results"]:
        opened = admin("GET", f"/api/v1/audit/records/{record['id']}")
        assert opened.status_code == 200 and not canaries.found_in(opened.content)
