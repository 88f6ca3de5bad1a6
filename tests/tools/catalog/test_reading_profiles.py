"""Valid and invalid sandbox profiles: one error for each invalid field, whatever is written."""

import json

import pytest
from django.conf import settings

from tools.catalog.sandbox.profiles import read_profile
from tools.errors import Malformed

MIB = 1024 * 1024


def profile(**fields):
    return {"name": "mine", **fields}


def flaws(raw):
    with pytest.raises(Malformed) as caught:
        read_profile(raw, organization="acme")
    assert caught.value.code == "invalid_sandbox_profile"
    return [flaw["field"] for flaw in caught.value.details["errors"]]


def hosts(*items):
    return read_profile(profile(allowed_hosts=[*items]), organization="acme")["allowed_hosts"]


def test_a_profile_that_says_nothing_allows_nothing():
    assert read_profile(profile(), organization="acme") == {
        "name": "mine", "description": "", "backend": "process", "minimum_isolation": "Standard",
        "allow_filesystem": False, "allowed_paths": [], "allow_network": False,
        "allowed_hosts": [], "proxy": False, "network_when_restricted": False,
        "max_memory_bytes": 256 * MIB, "max_cpu_s": 300, "max_processes": None,
        "max_disk_bytes": 16 * MIB, "max_files": 1024,
        "quota_bytes": 1024 * MIB, "quota_files": 10_000,
    }  # fmt: skip


WRONG = [
    ({"name": ""}, "name"),
    ({"name": None}, "name"),
    ({"name": 5}, "name"),
    ({"name": "a/b"}, "name"),
    ({"name": ".hidden"}, "name"),
    ({"name": "x" * 64}, "name"),
    ({"description": 1}, "description"),
    ({"description": "x" * 1_001}, "description"),
    ({"description": "a\u202eb"}, "description"),
    ({"backend": "docker"}, "backend"),
    ({"backend": ["process"]}, "backend"),
    ({"minimum_isolation": "standard"}, "minimum_isolation"),
    ({"allow_network": "yes"}, "allow_network"),
    ({"allow_filesystem": 1}, "allow_filesystem"),
    ({"proxy": None, "network_when_restricted": 0}, "network_when_restricted"),
    ({"proxy": "proxy"}, "proxy"),
    ({"max_memory_bytes": 0}, "max_memory_bytes"),
    ({"max_memory_bytes": True}, "max_memory_bytes"),
    ({"max_memory_bytes": 256.0 * MIB}, "max_memory_bytes"),
    ({"max_memory_bytes": 2**53}, "max_memory_bytes"),
    ({"max_cpu_time": "PT0S"}, "max_cpu_time"),
    ({"max_cpu_time": 300}, "max_cpu_time"),
    ({"max_cpu_time": "P2D"}, "max_cpu_time"),
    ({"max_processes": 0}, "max_processes"),
    ({"max_processes": 257}, "max_processes"),
    ({"max_disk_bytes": -1}, "max_disk_bytes"),
    ({"max_files": 0}, "max_files"),
    ({"quota_bytes": 0}, "quota_bytes"),
    ({"quota_files": 1_000_001}, "quota_files"),
    ({"allowed_host": []}, "allowed_host"),
    ({"organization": "other"}, "organization"),
    ({"backend": "degraded", "allow_network": True}, "allow_network"),
    ({"backend": "monty", "allow_network": True}, "allow_network"),
    ({"backend": "degraded", "minimum_isolation": "Strict"}, "minimum_isolation"),
]
WRONG_PATHS = [
    "/srv/data", None, 5, {}, {"path": ""}, {"path": None}, {"path": 5}, {"path": "srv/data"},
    {"path": "/"}, {"path": "//srv"}, {"path": "/srv/"}, {"path": "/srv/../etc"},
    {"path": "/srv/./data"}, {"path": "/srv//data"}, {"path": "/srv/\x07"}, {"path": "/proc"},
    {"path": "/proc/self/fd/3"}, {"path": "/sys/fs/cgroup"}, {"path": "/dev/shm"},
    {"path": "/run/docker.sock"}, {"path": "/var/run"}, {"path": "/var"}, {"path": "/tmp/x"},
    {"path": "/usr/share"}, {"path": "/lib/x"}, {"path": "/boot"}, {"path": "/srv" * 300},
    {"path": "/srv/data", "mode": "wr"}, {"path": "/srv/data", "mode": True},
    {"path": "/srv/data", "target": "/usr"},
]  # fmt: skip
WRONG_HOSTS = [
    "", " ", None, 5, [], {}, {"host": ""}, {"host": 5}, "https://example.com", "example.com/path",
    "example.com:443", "user@example.com", "a b", "a\x00.example.com", "a\r\nb", "*.*", "*.",
    "a.*.example.com", "exa*mple.com", "*example.com", ".example.com", "-a.example.com",
    "a" * 64 + ".com", "x." * 140 + "com", "127.1", "0x7f.1", "2130706433", "0177.0.0.1",
    "example.com\\@evil.com", "*.10.0.0.1",
    {"host": "example.com", "ports": []}, {"host": "example.com", "ports": 443},
    {"host": "example.com", "ports": [0]}, {"host": "example.com", "ports": [65536]},
    {"host": "example.com", "ports": ["443"]}, {"host": "example.com", "ports": [True]},
    {"host": "example.com", "ports": [443, 443]}, {"host": "example.com", "ports": [443.0]},
    {"host": "example.com", "methods": []}, {"host": "example.com", "methods": ["get"]},
    {"host": "example.com", "methods": ["CONNECT"]}, {"host": "example.com", "methods": "GET"},
    {"host": "example.com", "methods": ["GET /"]}, {"host": "example.com", "paths": ["v1"]},
    {"host": "example.com", "paths": ["/a/../b"]}, {"host": "example.com", "paths": ["/%2e%2e/"]},
    {"host": "example.com", "paths": ["/a?b"]}, {"host": "example.com", "paths": ["/a#b"]},
    {"host": "example.com", "paths": ["/a b"]}, {"host": "example.com", "paths": [None]},
    {"host": "example.com", "headers": [["A", "b"]]}, {"host": "example.com", "credential": ""},
    {"host": "example.com", "credential": "a/b"}, {"host": "example.com", "credential": ["x"]},
    {"host": "*", "credential": "key"}, {"host": "example.com", "credential": "k", "ports": [80]},
]  # fmt: skip


@pytest.mark.parametrize(("fields", "place"), WRONG, ids=lambda part: json.dumps(part)[:60])
def test_a_wrong_field_is_named_alone(fields, place):
    assert flaws(profile(**fields)) == [place]


@pytest.mark.parametrize("item", WRONG_PATHS, ids=lambda item: json.dumps(item)[:60])
def test_a_wrong_path_is_named_by_its_place(item):
    items = [{"path": "/srv/right"}, item]
    (place,) = {field.partition(".")[0] for field in flaws(profile(allowed_paths=items))}
    assert place == "allowed_paths[1]"


@pytest.mark.parametrize("item", WRONG_HOSTS, ids=lambda item: json.dumps(item)[:60])
def test_a_wrong_host_is_named_by_its_place(item):
    (place,) = {
        field.partition(".")[0] for field in flaws(profile(allowed_hosts=["example.com", item]))
    }
    assert place == "allowed_hosts[1]"


@pytest.mark.parametrize("field", ["allowed_paths", "allowed_hosts"])
@pytest.mark.parametrize("value", ["/srv", {}, 5, [{"path": "/srv/a", "host": "a"}] * 101])
def test_a_list_is_a_list_of_sensible_length(field, value):
    assert flaws(profile(**{field: value})) == [field]


@pytest.mark.parametrize("raw", [None, [], "x", 5, True])
def test_what_is_no_object_is_no_profile(raw):
    with pytest.raises(Malformed):
        read_profile(raw, organization="acme")


def test_every_wrong_field_is_named_at_once():
    wrong = profile(backend="x", max_files=0, allowed_hosts=["a b"], allowed_paths=[{"path": "/"}])
    assert set(flaws(wrong)) == {
        "backend", "max_files", "allowed_hosts[0].host", "allowed_paths[0].path",
    }  # fmt: skip


def test_the_products_own_places_are_never_shared():
    project, data = settings.BASE_DIR, settings.DATA_DIR
    above = [str(place) for place in project.parents if len(place.parts) > 1]
    places = [*above, str(project), f"{project}/tools", str(data), f"{data}/keys", f"{data}/run"]
    for place in places:
        assert flaws(profile(allowed_paths=[{"path": place}])), place


def test_a_workspace_is_shared_with_its_own_organization_alone(settings):
    settings.DATA_DIR = "/opt/crib"
    settings.WORKSPACES_DIR = "/opt/crib/workspaces"
    own = [{"path": "/opt/crib/workspaces/acme/tables", "mode": "rw"}]
    assert read_profile(profile(allowed_paths=own), organization="acme")["allowed_paths"] == own
    for path in ("acme2", "other", "other/acme", ""):
        item = {"path": f"/opt/crib/workspaces/{path}".rstrip("/")}
        assert flaws(profile(allowed_paths=[item])) == ["allowed_paths[0].path"]


def test_the_directories_of_sockets_are_never_shared(settings):
    settings.SANDBOX_SOCKET = "/opt/sandbox/s.sock"
    settings.REDIS_URL = "unix:///opt/redis/redis.sock?db=0"
    for path in ("/opt/sandbox", "/opt/redis", "/opt", "/opt/redis/redis.sock"):
        assert flaws(profile(allowed_paths=[{"path": path}])) == ["allowed_paths[0].path"]


def test_a_directory_comes_before_what_lies_in_it():
    items = [{"path": "/srv/a/b", "mode": "rw"}, {"path": "/srv/a"}]
    read = read_profile(profile(allowed_paths=items), organization="acme")
    assert read["allowed_paths"] == [{"path": "/srv/a", "mode": "ro"}, items[0]]


def test_a_path_is_named_once():
    items = [{"path": "/srv/a"}, {"path": "/srv/a", "mode": "rw"}]
    assert flaws(profile(allowed_paths=items)) == ["allowed_paths"]


def test_hosts_are_kept_in_the_spelling_they_are_compared_in():
    assert hosts("EXAMPLE.com.", "*.Example.com", "*", "bücher.example") == [
        "example.com", "*.example.com", "*", "xn--bcher-kva.example",
    ]  # fmt: skip


def test_a_host_with_more_to_say_is_an_object():
    item = {"host": "api.example.com", "ports": [8443], "methods": ["GET"], "paths": ["/v1"]}
    assert hosts(item, {"host": "a.example"}) == [item, "a.example"]


def test_a_credential_leaves_through_tls_unless_other_ports_are_named():
    assert hosts({"host": "a.example", "credential": "key"}) == [
        {"host": "a.example", "credential": "key", "ports": [443]}
    ]


def test_what_was_read_can_be_read_again():
    items = ["*.example.com", {"host": "a.example", "credential": "key", "paths": ["/v1"]}]
    assert hosts(*hosts(*items)) == hosts(*items)
