"""The egress rule of an http tool's request: the allowlist, narrowed to this one request."""

import threading
from types import MappingProxyType
from uuid import uuid4

import pytest

from sandbox.egress.rules.egress_policy import Denied, HostRule
from sandbox.egress.rules.grammar import Url
from sandbox.spec import IsolationLevel
from tests.factories import definition
from tools.builtin.manifest import HTTP_CALL
from tools.catalog.registry import CatalogCredential, Snapshot
from tools.catalog.signatures import sealing
from tools.definitions.tool import ToolDefinition, read_definition
from tools.models import LicenseTier
from tools.runners.base import ToolRun
from tools.runners.http import NotBound, _rule
from tools.runners.sandboxing import Uncredentialed, around_builtin

URL = "https://api.example.com/v1/x"


def credential(value):
    organization, row = uuid4(), uuid4()
    sealed = sealing.seal(value, organization=organization, row=row)
    return CatalogCredential(row, organization, "X-Key", sealed)


def rule(hosts, *, method="GET", wanted=None, credentials=("key",)):
    implementation = {"method": method, "url": URL}
    if wanted:
        implementation["credential"] = wanted
    raw = definition(type="http", parameters=[], implementation=implementation)
    snapshot = Snapshot(
        uuid4(), "acme", 1, LicenseTier(), MappingProxyType({}), MappingProxyType({}),
        allowed_hosts=tuple(hosts),
        credentials=MappingProxyType({name: credential(f"of {name}") for name in credentials}),
    )  # fmt: skip
    job = ToolRun(
        "acme", ToolDefinition(read_definition(raw)), {}, 7, threading.Event(),
        IsolationLevel.STANDARD, snapshot,
    )  # fmt: skip
    return _rule(job, around_builtin(job, HTTP_CALL), method, Url.parse(URL))


def keyed(host, name="key", **narrowed):
    return {"host": host, "credential": name, "ports": [443], **narrowed}


@pytest.mark.parametrize("host", ["api.example.com", "*.example.com", "*"])
def test_whatever_the_list_allows_only_this_request_is_let_through(host):
    assert rule([host]) == HostRule("api.example.com", (443,), ("GET",))


def test_a_prefix_of_paths_stays():
    found = rule([{"host": "api.example.com", "paths": ["/v1"]}])
    assert found.paths == ("/v1",)


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        ["example.com"],
        ["api.example.com.evil.example"],
        [{"host": "api.example.com", "ports": [8443]}],
        [{"host": "api.example.com", "methods": ["POST"]}],
        ["*", {"host": "api.example.com", "paths": ["/v2"]}],
    ],
)
def test_what_no_entry_allows_is_denied(hosts):
    with pytest.raises(Denied):
        rule(hosts)


def test_a_credential_of_the_host_goes_along_whether_it_is_named_or_not():
    for wanted in (None, "key"):
        assert rule([keyed("api.example.com")], wanted=wanted).headers == (("X-Key", "of key"),)


def test_of_two_credentials_the_one_that_is_named_goes_along():
    hosts = [keyed("api.example.com"), keyed("api.example.com", "other")]
    found = rule(hosts, wanted="other", credentials=("key", "other"))
    assert found.headers == (("X-Key", "of other"),)


@pytest.mark.parametrize(
    "hosts", [["api.example.com"], [keyed("*.example.com"), "api.example.com"]]
)
def test_a_credential_goes_only_where_the_nearest_entry_names_it(hosts):
    with pytest.raises(NotBound):
        rule(hosts, wanted="key")


def test_a_credential_that_is_gone_is_no_request_without_it():
    with pytest.raises(Uncredentialed):
        rule([keyed("api.example.com")], credentials=())
