"""The product as it stands in production: a proxy ends TLS before it."""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlencode, urlsplit

import pytest

from tests import crib as cribs
from tests.stubs.web import Authority, Reply, Seen, Web, serving

pytestmark = pytest.mark.part("walks")
NAME, CLIENT = "tools.example.org", "198.51.100.7"
SETTINGS = {
    "HTTPS": "true",
    "TRUSTED_PROXIES": "127.0.0.1",
    "ALLOWED_HOSTS": NAME,
    "HSTS_SUBDOMAINS": "true",
    "HSTS_PRELOAD": "true",
    "MFA_REQUIRED": "nobody",
}
PASSWORD = "correct horse battery"
_OWN_TO_A_HOP = frozenset({"connection", "transfer-encoding", "content-length"})


@dataclass
class Behind:
    """The product behind a proxy, which is asked by its name."""

    proxy: Web
    authority: Authority
    crib: cribs.Crib

    def __call__(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        context = ssl.create_default_context(cafile=self.authority.file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        connection = http.client.HTTPSConnection(NAME, context=context)
        plain = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=60)
        connection.sock = context.wrap_socket(plain, server_hostname=NAME)
        connection.request(
            method, path, body, {name.replace("_", "-"): said for name, said in headers.items()}
        )
        response = connection.getresponse()
        return response, response.read()

    def manage(self, *words: str) -> str:
        environment = {name: said for name, said in os.environ.items() if "ASYNC" not in name}
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=cribs.CHECKOUT,
            check=False,
            env=environment | SETTINGS | {"TOOLCRIB_DATA": str(self.crib.data)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def forwarding(url: str, seen: Seen) -> Reply:
    """What a proxy does: it says whose request it is, and that it came by TLS."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    before = seen.headers.get("x-forwarded-for")
    said = {name: value for name, value in seen.headers.items() if name not in _OWN_TO_A_HOP}
    said["x-forwarded-for"] = f"{before}, {CLIENT}" if before else CLIENT
    said["x-forwarded-proto"] = "https"
    connection.request(seen.method, seen.target, seen.body or None, said)
    response = connection.getresponse()
    body = response.read()
    headers = [one for one in response.getheaders() if one[0].lower() not in _OWN_TO_A_HOP]
    return Reply(response.status, headers, body)


@pytest.fixture(scope="module")
def behind() -> Iterator[Behind]:
    place = Path(mkdtemp(prefix="tc-"))
    authority = Authority(place, NAME)
    try:
        with cribs.running(place / "data", SETTINGS) as crib, serving(authority) as proxy:
            proxy.answer = lambda seen: forwarding(crib.url, seen)  # type: ignore[method-assign]
            yield Behind(proxy, authority, crib)
    finally:
        shutil.rmtree(place)


def test_a_person_logs_in_and_reads_pages(behind: Behind) -> None:
    change = f"u = User.objects.get(username='admin'); u.set_password('{PASSWORD}'); u.save()"
    behind.manage("shell", "-v0", "-c", f"from tools.models import User; {change}")
    page, content = behind("GET", "/login/")
    assert page.status == 200
    hsts = page.headers["Strict-Transport-Security"]
    assert hsts == "max-age=31536000; includeSubDomains; preload"
    csrf = page.headers["Set-Cookie"].partition(";")[0]
    assert csrf.startswith("__Host-csrf=") and "Secure" in page.headers["Set-Cookie"]
    hidden = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', content)
    assert hidden
    form = {"csrfmiddlewaretoken": hidden[1].decode(), "username": "admin", "password": PASSWORD}
    entered, _ = behind(
        "POST", "/login/", urlencode(form).encode(),
        Cookie=csrf, Origin=f"https://{NAME}", Content_Type="application/x-www-form-urlencoded",
    )  # fmt: skip
    assert (entered.status, entered.headers["Location"]) == (302, "/home/")
    session = next(
        said.partition(";")[0]
        for said in entered.headers.get_all("Set-Cookie") or []
        if said.startswith("__Host-session=")
    )
    home, shown = behind("GET", "/home/", Cookie=session)
    assert home.status == 200 and b"/live/" in shown


def test_an_agent_calls_a_tool_and_evidence_names_its_address(behind: Behind) -> None:
    token = re.search(r"tcr_\w+", behind.manage("create_agent", "magpie", "--group", "read-only"))
    assert token
    body = json.dumps(
        {"parameters": {"content": "{}", "format": "json"}, "group": ["read-only"]}
    ).encode()
    answer, said = behind(
        "POST", "/api/v1/tools/validate_content/execute", body,
        Authorization=f"Bearer {token[0]}", Content_Type="application/json",
        X_Forwarded_For="1.2.3.4",
    )  # fmt: skip
    assert answer.status == 200, said
    question = (
        "from audit.models import AuditRecord;"
        "accepted = AuditRecord.objects.filter(code='TOOL.ACCEPT');"
        "print([*accepted.values_list('source_ip', flat=True)])"
    )
    assert behind.manage("shell", "-v0", "-c", question).strip() == f"['{CLIENT}']"


def test_who_comes_without_the_proxy_is_sent_to_it(behind: Behind) -> None:
    connection = http.client.HTTPConnection(urlsplit(behind.crib.url).netloc, timeout=60)
    connection.request("GET", "/login/", headers={"Host": NAME})
    response = connection.getresponse()
    assert (response.status, response.headers["Location"]) == (301, f"https://{NAME}/login/")


def test_the_check_for_deployment_is_clean(behind: Behind) -> None:
    behind.manage("check", "--deploy", "--fail-level", "WARNING")
