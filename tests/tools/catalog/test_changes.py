"""Changes of the catalog: versions, signatures, visibility and audit records."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.factories import definition
from tests.tools.api.accounts.test_organizations import move
from tests.tools.database import tamper
from tests.tools.snapshots import current_catalog
from tools.catalog import actions
from tools.catalog.signatures import versions
from tools.catalog.signatures.keys import keys_of
from tools.definitions import signing
from tools.definitions.tool import ToolDefinition
from tools.errors import Conflict, Forbidden, InvalidDefinition, NotFound
from tools.models import Organization, Tool


def authentic(place, version, **changes):
    facts = {
        "organization": place.slug, "tool": version.tool_id, "name": version.tool.name,
        "number": version.number,
        "label": version.label, "definition": ToolDefinition(version.definition),
        "version_digest": version.digest, "origin": version.origin,
        "signature": version.signature, "key_id": version.key_id, "keys": keys_of(place.pk),
    }  # fmt: skip
    return versions.authentic(**facts | changes)


def test_every_change_is_a_new_signed_version(organization):
    tool = factories.tool(organization)
    for text in ("second", "third"):
        actions.update_tool(
            tool=tool, definition=definition(description=text), by=factories.actor(organization)
        )
    found = list(tool.versions.order_by("number"))
    assert [version.label for version in found] == ["1.0.0", "1.0.1", "1.0.2"]
    assert all(authentic(organization, version) for version in found)


def test_what_get_returned_is_unchanged_when_it_is_put(admin_api, organization):
    factories.tool(
        organization, group=["a"], metadata={"b": [1.5, None]}, cost_per_invocation="0.5"
    )
    shown = admin_api.get("/tools/echo").json()
    again = admin_api.put("/tools/echo", shown)
    assert (again.status_code, again.json()) == (200, shown | {"findings": []})
    assert Tool.objects.get(organization=organization, name="echo").versions.count() == 1


def test_every_builtin_is_unchanged_when_it_is_put(admin_api):
    for name in ("read_file", "write_file", "validate_content"):
        shown = admin_api.get(f"/tools/{name}").json()
        assert admin_api.put(f"/tools/{name}", shown).json()["digest"] == shown["digest"]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("change", "label"),
    [({"requires_confirmation": True}, "2.0.0"), ({"requiresConfirmation": True}, "2.0.0"),
     ({"group": []}, "2.0.0"), ({"parameters": []}, "2.0.0"),
     ({"applicable-states": ["a"]}, "2.0.0"), ({"rateLimitPerMinute": 5}, "1.1.0"),
     ({"description": "Other words."}, "1.0.1")],
)  # fmt: skip
def test_a_patch_changes_one_field_in_any_dialect(admin_api, organization, change, label):
    before = factories.tool(organization).version.definition
    response = admin_api.patch("/tools/echo", change)
    assert response.status_code == 200, response.content
    after = {key: response.json()[key] for key in before}
    assert len([key for key in before if before[key] != after[key]]) in {1, 2}
    assert response.json()["version"] == label


def test_after_the_greatest_label_that_may_be_asked_for_more_follow(admin_api, organization):
    factories.tool(organization, version="999999999.0.0")
    labels = [
        admin_api.patch("/tools/echo", {"requires_confirmation": held}).json()["version"]
        for held in (True, False, True)
    ]
    assert labels == ["1000000000.0.0", "1000000000.1.0", "1000000001.0.0"]
    answer = admin_api.patch("/tools/echo", {"description": "x", "version": "1000000002.0.0"})
    assert answer.json()["details"]["errors"][0]["field"] == "version"


def test_a_version_may_be_named_once(organization):
    tool = factories.tool(organization, version="2.0.0")
    by = factories.actor(organization)
    actions.update_tool(tool=tool, definition=definition(description="b", version="3.0.0"), by=by)
    with pytest.raises(Conflict):
        actions.update_tool(
            tool=tool, definition=definition(description="c", version="2.0.0"), by=by
        )


def test_restoring_is_a_new_version_that_says_what_the_old_one_said(organization):
    tool = factories.tool(organization)
    by = factories.actor(organization)
    actions.update_tool(tool=tool, definition=definition(description="changed"), by=by)
    restored = actions.restore_version(tool=tool, label="1.0.0", by=by)
    first, latest = tool.versions.get(number=1), restored.version
    assert (latest.number, latest.digest) == (3, first.digest)
    assert authentic(organization, latest)


def test_restoring_what_was_never_there_is_not_found(organization):
    tool = factories.tool(organization)
    with pytest.raises(NotFound):
        actions.restore_version(tool=tool, label="9.9.9", by=factories.actor(organization))


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"type": "builtin", "implementation": {"entry_point": "read_file"}}],
)
def test_a_tool_stays_what_it_is(organization, change):
    tool = factories.tool(organization)
    with pytest.raises(InvalidDefinition):
        actions.update_tool(
            tool=tool, definition=definition(**change), by=factories.actor(organization)
        )
    assert tool.versions.count() == 1


def test_a_builtin_cannot_be_registered(admin_api):
    response = admin_api.post("/tools", {"name": "mine", "type": "builtin", "description": "d"})
    assert response.status_code == 400
    assert response.json()["details"]["errors"][0]["field"] == "type"


def test_a_builtin_cannot_be_pointed_elsewhere(admin_api):
    change = {"implementation": {"entry_point": "write_file"}}
    assert admin_api.patch("/tools/read_file", change).status_code == 400


def test_a_builtin_cannot_be_deleted(admin_api):
    assert admin_api.delete("/tools/read_file").status_code == 409


def test_a_deleted_name_can_be_used_again(organization):
    by = factories.actor(organization)
    first = factories.tool(organization)
    current_catalog(organization)
    actions.delete_tool(tool=first, by=by)
    assert current_catalog(organization).tool("echo") is None
    second = factories.tool(organization, description="again")
    assert current_catalog(organization).tool("echo").id == second.pk != first.pk
    assert first.versions.count() == 1


def test_names_that_differ_in_case_alone_clash(organization):
    factories.tool(organization, "Echo")
    with pytest.raises(Conflict):
        factories.tool(organization, "eCHO")


def test_a_disabled_tool_is_refused_at_once(api, admin_api, organization):
    factories.tool(organization)
    assert admin_api.post("/tools/echo/disable").json()["status"] == "disabled"
    response = api.execute("echo", {"text": "x"})
    assert (response.status_code, response.json()["code"]) == (403, "tool_disabled")
    assert not AuditRecord.objects.filter(organization=organization.slug, code="TOOL.START")


def test_an_enabled_tool_is_listed_again(api, admin_api, organization):
    factories.tool(organization)
    admin_api.post("/tools/echo/disable")
    admin_api.post("/tools/echo/enable")
    assert [tool["name"] for tool in api.get("/tools").json()["results"]] == ["echo"]


def test_every_change_is_audited_with_its_actor(admin_api, organization, admin_user):
    admin_api.post("/tools", definition())
    admin_api.patch("/tools/echo", {"title": "Echo"})
    admin_api.post("/tools/echo/disable")
    admin_api.post("/tools/echo/enable")
    admin_api.post("/tools/echo/versions/1.0.0/restore")
    admin_api.delete("/tools/echo")
    records = AuditRecord.objects.filter(organization=organization.slug, subject="echo")
    assert [record.code for record in records.order_by("id")] == [
        "REG.TOOL_CREATE", "REG.TOOL_UPDATE", "REG.TOOL_DISABLE", "REG.TOOL_ENABLE",
        "REG.TOOL_RESTORE", "REG.TOOL_DELETE",
    ]  # fmt: skip
    assert {record.actor for record in records} == {admin_user.username}


def test_a_signature_vouches_for_every_part_of_a_version(organization):
    version = factories.tool(organization).version
    other = ToolDefinition({**version.definition, "description": "Tampered."})
    assert authentic(organization, version)
    assert not authentic(organization, version, definition=other)
    assert not authentic(organization, version, definition=other, version_digest=other.digest)
    for change in ({"name": "x"}, {"number": 2}, {"label": "9"}, {"organization": "x"},
                   {"origin": "agent"}, {"key_id": "0" * 16}, {"signature": "AAAA"},
                   {"signature": "not base64!"}):  # fmt: skip
        assert not authentic(organization, version, **change)


def test_a_signing_key_is_made_once_and_kept(tmp_path):
    path = tmp_path / "keys" / "signing.pem"
    first, second = (
        signing.PrivateSigningKey.from_file(path),
        signing.PrivateSigningKey.from_file(path),
    )
    assert first.key_id == second.key_id
    assert second.verifies({"a": 1}, first.sign({"a": 1}), first.key_id)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_group_with_tools_is_not_deleted(admin_api, organization):
    factories.tool(organization, group=["mine"])
    response = admin_api.delete("/groups/mine")
    assert (response.status_code, response.json()["details"]["dependants"]) == (409, ["echo"])


def test_an_empty_group_is_deleted(admin_api):
    assert admin_api.post("/groups", {"name": "mine"}).status_code == 201
    assert admin_api.delete("/groups/mine").status_code == 204
    assert admin_api.get("/groups/mine").status_code == 404


@pytest.mark.parametrize("name", ["*", "", "a\u200b", "x" * 101, 5, None])
def test_a_group_cannot_have_a_name_that_misleads(admin_api, name):
    assert admin_api.post("/groups", {"name": name}).status_code == 400


TIERS = [
    ("Core", {"read_file", "write_file"}, 0),
    ("WriterPro", {"read_file", "write_file"}, 10),
    ("Teams", {"read_file", "write_file", "validate_content"}, 50),
    ("Enterprise", {"read_file", "write_file", "validate_content"}, None),
]


@pytest.mark.parametrize(("tier", "builtins", "_"), TIERS)
def test_a_tier_includes_its_builtins_and_no_others(db, tier, builtins, _):
    place = factories.organization(f"tier-{tier.lower()}", tier)
    api = factories.api(factories.agent(place, groups=["read-only", "write"]))
    listed = api.get("/tools?group=read-only&group=write").json()["results"]
    assert {tool["name"] for tool in listed} == builtins


def test_a_builtin_beyond_the_tier_is_refused_and_audited(db):
    place = factories.organization("tier-gate", "Core")
    api = factories.api(factories.agent(place, groups=["read-only"]))
    response = api.execute("validate_content", {"content": "{}"}, group=["read-only"])
    assert (response.status_code, response.json()["code"]) == (403, "license_excludes_tool")
    codes = AuditRecord.objects.filter(organization="tier-gate").values_list("code", flat=True)
    assert "TOOL.DENY" in codes and "TOOL.START" not in codes


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(("tier", "_", "limit"), TIERS)
def test_a_tier_has_room_for_its_custom_tools_and_no_more(db, tier, _, limit):
    place = factories.organization(f"room-{tier.lower()}", tier)
    for number in range(51 if limit is None else limit):
        factories.tool(place, f"t{number}")
    if limit is not None:
        with pytest.raises(Forbidden, match=f"allows {limit} custom tools"):
            factories.tool(place, "one-more")


def test_custom_tools_stop_when_the_tier_loses_them(api, admin_api, organization):
    factories.tool(organization)
    assert move(admin_api, organization.slug, "Core").status_code == 200
    response = api.execute("echo", {"text": "x"})
    assert response.json()["code"] == "tool_disabled"


def test_a_deleted_tool_makes_room(db):
    place = factories.organization("room-again", "WriterPro")
    tools = [factories.tool(place, f"t{number}") for number in range(10)]
    actions.delete_tool(tool=tools[0], by=factories.actor(place))
    assert factories.tool(place, "t10").name == "t10"


def test_updates_of_a_full_catalog_are_no_registrations(db):
    place = factories.organization("full", "WriterPro")
    tools = [factories.tool(place, f"t{number}") for number in range(10)]
    changed = definition("t0", description="changed")
    assert actions.update_tool(tool=tools[0], definition=changed, by=factories.actor(place))


def test_a_change_that_fails_leaves_nothing_behind(organization):
    before = Organization.objects.get(pk=organization.pk).revision
    with pytest.raises(InvalidDefinition):
        factories.tool(organization, group="not a list")
    assert Organization.objects.get(pk=organization.pk).revision == before


def test_a_tampered_definition_loses_its_signature_also_where_it_was_checked_before(organization):
    version = factories.tool(organization).version
    assert authentic(organization, version)
    tamper(version, description="Tampered.")
    version.refresh_from_db()
    assert not authentic(organization, version)
