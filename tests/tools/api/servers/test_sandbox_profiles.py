"""Sandbox profiles, egress credentials and an organization's required isolation over REST."""

import json
from itertools import product

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.savepoints import rolled_back
from tests.tools.shapes import check_error
from tools.licensing import tiers
from tools.models import EgressCredential, LicenseTier, Organization, SandboxProfile

pytestmark = pytest.mark.django_db

PROFILE = {"name", "description", "backend", "minimum_isolation", "allow_filesystem",
           "allowed_paths", "allow_network", "allowed_hosts", "proxy", "network_when_restricted",
           "max_memory_bytes", "max_cpu_time", "max_processes", "max_disk_bytes", "max_files",
           "quota_bytes", "quota_files", "created_at", "updated_at"}  # fmt: skip
SECRET = "Bearer c4nary-0123456789"
KEY = {"name": "key", "header": "Authorization", "value": SECRET}


@pytest.fixture
def staff_api(organization):
    """A client of a person with the named permissions, no superuser."""

    def enter(*permissions):
        user = factories.person(organization)
        factories.permit(user, *permissions)
        return Api(factories.token(user, scopes=["read", "execute", "manage"]))

    return enter


def test_a_profile_is_made_shown_listed_changed_and_deleted(admin_api):
    made = admin_api.post("/sandbox-profiles", {"name": "mine", "max_cpu_time": "PT90S"})
    assert (made.status_code, made.headers["Location"]) == (201, "/api/v1/sandbox-profiles/mine")
    assert set(made.json()) == PROFILE
    assert (made.json()["max_cpu_time"], made.json()["backend"]) == ("PT1M30S", "process")
    assert admin_api.get("/sandbox-profiles").json()["results"] == [made.json()]
    changed = admin_api.patch("/sandbox-profiles/mine", {"max_processes": 3})
    assert (changed.json()["max_processes"], changed.json()["max_cpu_time"]) == (3, "PT1M30S")
    replaced = admin_api.put("/sandbox-profiles/mine", {"description": "d"})
    assert (replaced.json()["max_processes"], replaced.json()["max_cpu_time"]) == (None, "PT5M")
    assert admin_api.get("/sandbox-profiles/mine").json() == replaced.json()
    assert admin_api.delete("/sandbox-profiles/mine").status_code == 204
    check_error(admin_api.get("/sandbox-profiles/mine"), 404, "profile_not_found")


@pytest.mark.parametrize("method", ["put", "patch"])
def test_what_is_shown_may_come_back(admin_api, method):
    shown = admin_api.post("/sandbox-profiles", {"name": "mine"}).json()
    moments = {shown.pop(name) for name in ("created_at", "updated_at")}
    again = getattr(admin_api, method)("/sandbox-profiles/mine", shown)
    assert again.status_code == 200 and moments
    check_error(admin_api.patch("/sandbox-profiles/mine", {"name": "other"}), 400)


def test_every_wrong_field_of_a_profile_is_named(admin_api, organization):
    wrong = {"name": "a b", "backend": "x", "allowed_hosts": ["a b"], "allow_network": "yes"}
    body = check_error(admin_api.post("/sandbox-profiles", wrong), 400, "invalid_sandbox_profile")
    assert {flaw["field"] for flaw in body["details"]["errors"]} == {
        "name", "backend", "allowed_hosts[0].host", "allow_network",
    }  # fmt: skip
    assert not SandboxProfile.objects.filter(organization=organization).exists()


def test_a_body_that_is_no_object_is_400(admin_api, subtests):
    for body, path in product(
        [[], None, "x", 5, [{}]], ["/sandbox-profiles", "/egress-credentials"]
    ):
        with subtests.test(body=body, path=path):
            check_error(admin_api.post(path, body), 400)


def test_a_profile_of_that_name_is_409(admin_api):
    admin_api.post("/sandbox-profiles", {"name": "mine"})
    check_error(admin_api.post("/sandbox-profiles", {"name": "mine"}), 409, "profile_exists")


def test_a_profile_that_tools_name_is_409_with_their_names(admin_api, organization):
    admin_api.post("/sandbox-profiles", {"name": "mine"})
    wanted = factories.definition(constraints={"sandboxProfile": "mine"})
    made = admin_api.post("/tools", wanted).json()
    assert made["constraints"]["sandbox_profile"] == "mine"
    body = check_error(admin_api.delete("/sandbox-profiles/mine"), 409, "has_dependants")
    assert body["details"]["dependants"] == ["echo"]


def test_a_tier_without_profiles_is_403(admin_api, organization):
    tier = LicenseTier.objects.get(name="Teams")
    tiers.set_tier(organization=organization, tier=tier, by=factories.actor(organization))
    refused = admin_api.post("/sandbox-profiles", {"name": "mine"})
    check_error(refused, 403, "license_excludes_profiles")
    named = factories.definition(constraints={"sandbox_profile": "mine"})
    check_error(admin_api.post("/tools", named), 403, "license_excludes_profiles")


PERMISSIONS = [
    ("get", "/sandbox-profiles", "view_sandboxprofile"),
    ("post", "/sandbox-profiles", "add_sandboxprofile"),
    ("put", "/sandbox-profiles/mine", "change_sandboxprofile"),
    ("patch", "/sandbox-profiles/mine", "change_sandboxprofile"),
    ("delete", "/sandbox-profiles/mine", "delete_sandboxprofile"),
    ("get", "/egress-credentials", "view_egresscredential"),
    ("post", "/egress-credentials", "add_egresscredential"),
    ("patch", "/egress-credentials/key", "change_egresscredential"),
    ("delete", "/egress-credentials/key", "delete_egresscredential"),
]


def test_each_deed_needs_its_permission(admin_api, api, staff_api, subtests):
    admin_api.post("/sandbox-profiles", {"name": "mine"})
    admin_api.post("/egress-credentials", KEY)
    for method, path, permission in PERMISSIONS:
        with subtests.test(method=method, path=path, permission=permission), rolled_back():
            body = KEY | {"name": "new"} if method == "post" else {}
            for caller in (api, staff_api("view_tool")):
                check_error(getattr(caller, method)(path, body), 403)
            allowed = getattr(staff_api(permission), method)(path, body)
            assert allowed.status_code in {200, 201, 204, 400}  # 400: it passed authorization


def test_staff_share_nothing_outside_the_workspace(staff_api, organization):
    wanted = {"name": "mine", "allowed_paths": [{"path": "/srv"}]}
    body = check_error(staff_api("add_sandboxprofile").post("/sandbox-profiles", wanted), 403)
    assert body["code"] == "not_permitted"
    assert not SandboxProfile.objects.filter(organization=organization).exists()


def test_a_path_that_cannot_be_opened_is_named(admin_api):
    wanted = {"name": "mine", "allowed_paths": [{"path": "/srv/there-is-no-such-thing"}]}
    body = check_error(admin_api.post("/sandbox-profiles", wanted), 400, "invalid_sandbox_profile")
    assert [flaw["field"] for flaw in body["details"]["errors"]] == ["allowed_paths[0].path"]


def test_a_credential_is_never_shown(admin_api, organization):
    made = admin_api.post("/egress-credentials", KEY)
    assert (made.status_code, made.json()["value"]) == (201, "…")
    changed = admin_api.patch("/egress-credentials/key", {"value": SECRET + "2"})
    answers = [made, changed, admin_api.put("/egress-credentials/key", {"header": "X-Key"})]
    answers += [admin_api.get("/egress-credentials"), admin_api.get("/egress-credentials/key")]
    answers += [admin_api.post("/egress-credentials", KEY | {"name": "b", "header": "Host"})]
    assert all(b"c4nary" not in answer.content for answer in answers)
    records = AuditRecord.objects.filter(organization=organization.slug)
    assert "c4nary" not in json.dumps([record.details for record in records])
    assert b"c4nary" not in bytes(EgressCredential.objects.get(organization=organization).sealed)


def test_a_credential_that_is_named_is_409(admin_api):
    admin_api.post("/egress-credentials", KEY)
    hosts = [{"host": "a.example", "credential": "key"}]
    admin_api.post("/sandbox-profiles", {"name": "mine", "allowed_hosts": hosts})
    body = check_error(admin_api.delete("/egress-credentials/key"), 409, "has_dependants")
    assert body["details"]["dependants"] == ["sandbox-profile/mine"]


def test_an_organization_says_what_web_fetch_reaches_and_how_strong_the_wall_is(
    admin_api, organization
):
    place = f"/organizations/{organization.slug}"
    before = admin_api.get(place).json()
    assert (before["allowed_hosts"], before["minimum_isolation"]) == ([], "Standard")
    wanted = {"allowed_hosts": ["*.Example.com"], "minimum_isolation": "Strict"}
    after = admin_api.patch(place, wanted).json()
    assert after == before | {"allowed_hosts": ["*.example.com"], "minimum_isolation": "Strict"}
    records = AuditRecord.objects.filter(
        organization=organization.slug, code="ADMIN.ORGANIZATION_CHANGE"
    )
    assert [record.details for record in records.order_by("id")] == [
        {
            "before": {"minimum_isolation": "Standard"},
            "after": {"minimum_isolation": "Strict"},
            "source": {"transport": "rest"},
        },
        {
            "before": {"allowed_hosts": []},
            "after": {"allowed_hosts": ["*.example.com"]},
            "source": {"transport": "rest"},
        },
    ]


WRONG_DEMANDS = [
    {"allowed_hosts": ["a b"]}, {"allowed_hosts": "*"}, {"allowed_hosts": [None]},
    {"allowed_hosts": [{"host": "a.example", "credential": "none"}]},
    {"allowed_hosts": ["a.example"] * 101}, {"minimum_isolation": "none"},
    {"minimum_isolation": None}, {"minimum_isolation": 1},
]  # fmt: skip


def test_a_wrong_demand_changes_nothing(admin_api, organization, subtests):
    place = f"/organizations/{organization.slug}"
    mark = admin_api.post(f"{place}/tier/preview", {"tier": "Core"}).json()["preview_mark"]
    right = {"name": "Other", "tier": "Core", "preview_mark": mark}
    for body in WRONG_DEMANDS:
        with subtests.test(body=body):
            check_error(admin_api.patch(place, right | body), 400)
            row = Organization.objects.select_related("tier").get(pk=organization.pk)
            assert (row.allowed_hosts, row.minimum_isolation) == ([], "Standard")
            assert (row.name, row.tier.name) == (organization.slug, "Enterprise")
