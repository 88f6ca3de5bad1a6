"""The request to sandboxd that follows from a definition, an isolation level and a profile."""

import threading
from dataclasses import replace
from types import MappingProxyType
from uuid import uuid4

import pytest

from sandbox.egress.rules.egress_policy import Denied, EgressPolicy, HostRule
from sandbox.egress.rules.grammar import Url
from sandbox.egress.rules.host_rules import Rules
from sandbox.spec import Backend, IsolationLevel, Limits, Mount, Network, Profile
from tests.factories import definition
from tools.builtin.manifest import Isolated
from tools.catalog.list_fields import ListedFields
from tools.catalog.sandbox.hosts import read_hosts
from tools.catalog.signatures import sealed_texts
from tools.catalog.snapshot import CatalogCredential, CatalogProfile, Snapshot
from tools.definitions.tool import ToolDefinition, read_definition
from tools.models import LicenseTier
from tools.runners.http import CredentialNotBound, _egress_rule
from tools.runners.sandbox_runs import (
    CredentialUnavailable,
    Surroundings,
    builtin_surroundings,
    code_surroundings,
    egress_policy,
    run_program,
)
from tools.runners.tool_runs import ToolRun

STANDARD, RESTRICTED = IsolationLevel.STANDARD, IsolationLevel.RESTRICTED
OWN = CatalogProfile(
    name="mine",
    backend=Backend.PROCESS,
    minimum_isolation=STANDARD,
    mounts=(Mount("/srv/data", "/srv/data"),),
    allow_network=True,
    allowed_hosts=("example.com",),
    proxy=False,
    network_when_restricted=False,
    memory_bytes=64_000_000,
    cpu_s=2,
    processes=None,
    disk_bytes=4096,
    files=8,
    quota_bytes=65536,
    quota_files=9,
)
WORKSPACE = Mount("/srv/workspace", "/workspace")
READING = Isolated("read_file", lambda organization: Profile(STANDARD, mounts=(WORKSPACE,)))
FETCHING = replace(READING, module="web_fetch", network=True)


def run(own=None, level=STANDARD, hosts=(), credentials=None, **fields):
    if own is not None:
        fields["constraints"] = {"sandbox_profile": "mine", "max_output_size": 1000}
    snapshot = Snapshot(
        uuid4(), "acme", 1, LicenseTier(), MappingProxyType({}), MappingProxyType({}),
        allowed_hosts=tuple(hosts),
        profiles=MappingProxyType({} if own is None else {"mine": own}),
        credentials=MappingProxyType(credentials or {}),
    )  # fmt: skip
    read = ToolDefinition(read_definition(definition(**fields)))
    return ToolRun("acme", read, {}, 7, threading.Event(), level, snapshot)


def test_without_a_profile_a_tool_has_the_usual_limits_and_nothing_else():
    around = code_surroundings(run(level=RESTRICTED))
    assert around.profile == Profile(RESTRICTED)
    assert around.limits == Limits(wall_s=7)
    assert egress_policy(around, run().snapshot) == EgressPolicy()


def test_a_profile_is_what_sandboxd_is_asked_for():
    around = code_surroundings(run(replace(OWN, backend=Backend.CONTAINER)))
    assert around.profile == Profile(
        STANDARD, mounts=OWN.mounts, backend=Backend.CONTAINER, network=Network.HELPER
    )
    assert around.limits == Limits(
        wall_s=7, output_bytes=1000, memory_bytes=64_000_000, cpu_s=2, tmp_bytes=4096, tmp_inodes=8,
        shared_bytes=65536, shared_files=9,
    )  # fmt: skip
    assert egress_policy(around, run().snapshot).rules == (HostRule("example.com"),)


def test_a_built_in_tool_has_room_for_what_its_workspace_may_hold():
    """Independent of the paths of its profile: the tool itself reports how much is left."""
    limits = builtin_surroundings(run(OWN), READING).limits
    assert (limits.shared_bytes, limits.shared_files) == (2 * 1024**3, 20_000)


def test_a_profile_may_have_fewer_processes():
    assert code_surroundings(run(replace(OWN, processes=3))).limits.processes == 3


DOORS = [
    ({}, STANDARD, Network.HELPER),
    ({"proxy": True}, STANDARD, Network.PROXY),
    ({"allow_network": False}, STANDARD, Network.NONE),
    ({"allow_network": False, "proxy": True}, STANDARD, Network.NONE),
    ({}, RESTRICTED, Network.NONE),
    ({"proxy": True}, RESTRICTED, Network.NONE),
    ({"network_when_restricted": True}, RESTRICTED, Network.HELPER),
    ({"network_when_restricted": True, "allow_network": False}, RESTRICTED, Network.NONE),
]


@pytest.mark.parametrize(("change", "level", "door"), DOORS)
def test_a_door_is_there_only_where_everybody_allows_it(change, level, door):
    around = code_surroundings(run(replace(OWN, **change), level))
    assert around.profile.network == door
    assert bool(egress_policy(around, run().snapshot).rules) == (door != Network.NONE)


def test_javascript_is_said_to_be_javascript():
    source = {"language": "javascript", "source": "export const main = (p) => p"}
    assert code_surroundings(run(implementation=source)).profile.language == "javascript"


def test_a_built_in_reaches_what_its_organization_allows():
    job = run(hosts=["example.com", {"host": "a.example", "paths": ["/v1"], "ports": [443]}])
    around = builtin_surroundings(job, FETCHING)
    assert around.profile.network == Network.HELPER
    assert egress_policy(around, job.snapshot).rules == (
        HostRule("example.com"),
        HostRule("a.example", ports=(443,), paths=("/v1",)),
    )


def test_a_built_in_without_hosts_has_a_door_that_leads_nowhere():
    around = builtin_surroundings(run(), FETCHING)
    assert (around.profile.network, around.hosts) == (Network.HELPER, ())


def test_a_built_in_that_needs_no_network_has_none():
    assert builtin_surroundings(run(OWN, hosts=["*"]), READING).profile.network == Network.NONE


def test_a_built_in_has_no_network_at_restricted():
    around = builtin_surroundings(run(hosts=["*"], level=RESTRICTED), FETCHING)
    assert (around.profile.level, around.profile.network) == (RESTRICTED, Network.NONE)


def test_a_profile_sets_limits_and_hosts_of_a_built_in_and_leaves_its_files():
    around = builtin_surroundings(run(replace(OWN, proxy=True), hosts=["*"]), FETCHING)
    assert (around.profile.mounts, around.profile.network) == ((WORKSPACE,), Network.HELPER)
    assert (around.limits.memory_bytes, around.hosts) == (64_000_000, ("example.com",))
    closed = builtin_surroundings(run(replace(OWN, allow_network=False), hosts=["*"]), FETCHING)
    assert closed.profile.network == Network.NONE


def credential(value="s3cret"):
    organization, row = uuid4(), uuid4()
    sealed = sealed_texts.seal(value, organization=organization, row=row)
    return CatalogCredential(row, organization, "X-Key", sealed)


KEYED = ({"host": "a.example", "credential": "key", "ports": [443]},)


def test_a_credential_is_put_into_the_rule_that_names_it():
    job = run(replace(OWN, allowed_hosts=KEYED), credentials={"key": credential()})
    (rule,) = egress_policy(code_surroundings(job), job.snapshot).rules
    assert rule == HostRule("a.example", ports=(443,), headers=(("X-Key", "s3cret"),))


def test_what_a_profile_says_the_broker_takes():
    wanted = ["*", "*.a.example", "192.0.2.1", "2001:db8::1", "bücher.example",
              {"host": "b.example", "ports": [8443], "methods": ["GET"], "paths": ["/v1"],
               "credential": "key"}]  # fmt: skip
    hosts = read_hosts(ListedFields({"hosts": wanted}, []), "hosts")
    job = run(replace(OWN, allowed_hosts=tuple(hosts)), credentials={"key": credential()})
    Rules(egress_policy(code_surroundings(job), job.snapshot))


def test_a_credential_is_not_opened_where_no_door_is():
    job = run(replace(OWN, allowed_hosts=KEYED, allow_network=False))
    assert egress_policy(code_surroundings(job), job.snapshot) == EgressPolicy()


@pytest.mark.parametrize("credentials", [{}, {"key": replace(credential(), id=uuid4())}])
def test_a_run_without_its_credential_does_not_begin(credentials):
    job = run(replace(OWN, allowed_hosts=KEYED), credentials=credentials)
    with pytest.raises(CredentialUnavailable, match="key"):
        egress_policy(code_surroundings(job), job.snapshot)
    result = run_program(job, None, code_surroundings(job))
    assert (result.outcome, result.error_code) == ("SANDBOX_ERROR", "EGRESS_UNAVAILABLE")


def test_what_surrounds_a_run_holds_no_secret():
    job = run(replace(OWN, allowed_hosts=KEYED), credentials={"key": credential()})
    around = code_surroundings(job)
    assert isinstance(around, Surroundings)
    assert "s3cret" not in repr([around, job.snapshot])


def test_a_profile_that_is_not_there_is_not_done_without():
    job = run(OWN)
    with pytest.raises(LookupError):
        code_surroundings(
            replace(job, snapshot=replace(job.snapshot, profiles=MappingProxyType({})))
        )


URL = "https://api.example.com/v1/x"


def credential_of(value):
    organization, row = uuid4(), uuid4()
    sealed = sealed_texts.seal(value, organization=organization, row=row)
    return CatalogCredential(row, organization, "X-Key", sealed)


def rule(hosts, *, method="GET", wanted=None, credentials=("key",)):
    implementation = {"method": method, "url": URL}
    if wanted:
        implementation["credential"] = wanted
    raw = definition(type="http", parameters=[], implementation=implementation)
    snapshot = Snapshot(
        uuid4(), "acme", 1, LicenseTier(), MappingProxyType({}), MappingProxyType({}),
        allowed_hosts=tuple(hosts),
        credentials=MappingProxyType({name: credential_of(f"of {name}") for name in credentials}),
    )  # fmt: skip
    job = ToolRun(
        "acme", ToolDefinition(read_definition(raw)), {}, 7, threading.Event(),
        IsolationLevel.STANDARD, snapshot,
    )  # fmt: skip
    return _egress_rule(job, method, Url.parse(URL))


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
    with pytest.raises(CredentialNotBound):
        rule(hosts, wanted="key")


def test_a_credential_that_is_gone_is_no_request_without_it():
    with pytest.raises(CredentialUnavailable):
        rule([keyed("api.example.com")], credentials=())
