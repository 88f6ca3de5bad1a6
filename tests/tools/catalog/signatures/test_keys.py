"""Signing keys of an organization are created, rotated and distrusted; unsigned versions are
detected."""

import json
import random
from types import SimpleNamespace

import pytest
from django.db import connection

from audit.models import AuditRecord
from tests import factories
from tools.catalog import actions as catalog
from tools.catalog.imports.catalog_export import exported
from tools.catalog.registry import registry
from tools.catalog.signatures import keys, newest, verification
from tools.catalog.signatures.version_signatures import signed
from tools.definitions import signing
from tools.definitions.vocabulary import SIGNATURE_INVALID
from tools.errors import Conflict, Refused
from tools.management import config_items
from tools.models import Organization, Origin, SigningKey, Tool, ToolVersion

pytestmark = pytest.mark.django_db


def snapshot(place):
    return registry.snapshot(place.pk, Organization.objects.get(pk=place.pk).revision)


def write(sql, *values):
    """Writes as an attacker with access to the database only."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE tools_toolversion DISABLE TRIGGER USER")
        cursor.execute(sql, values)
        cursor.execute("ALTER TABLE tools_toolversion ENABLE TRIGGER USER")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def edit(version, **columns):
    named = ", ".join(f"{column} = %s" for column in columns)
    write(f"UPDATE tools_toolversion SET {named} WHERE id = %s", *columns.values(), version.pk)


def remember_versions(place):
    """Updates the version numbers that are remembered, as after a commit."""
    tools = snapshot(place).tools.values()
    newest.newest.saw(place.pk, {one.id: one.number for one in tools if not one.flaw})


def flaw(place, name="echo"):
    registry.forget()
    return snapshot(place).tools[name].flaw


def actor_of(place):
    return factories.actor(place)


def test_a_version_is_signed_with_its_organizations_own_key(organization):
    version = factories.tool(organization).version
    row = SigningKey.objects.get(organization=organization)
    assert version.key_id == row.key_id != keys.installation_key().key_id
    assert not flaw(organization)
    assert "sealed" not in repr(row)


def test_what_a_retired_key_signed_stays_good(organization):
    factories.tool(organization)
    new = keys.rotate_key(organization=organization, by=actor_of(organization))
    assert not flaw(organization)
    assert factories.tool(organization, "later").version.key_id == new.key_id


def test_what_the_installations_key_signed_stays_good(organization):
    version = factories.tool(organization).version
    own = keys.installation_key()
    said = catalog.statement_of(
        organization=organization.slug, tool=version.tool_id, name="echo",
        number=1, label=version.label,
        version_digest=version.digest, origin=version.origin, early=True,
    )  # fmt: skip
    edit(version, key_id=own.key_id, signature=own.sign(said))
    assert not flaw(organization)


def test_what_a_distrusted_key_signed_is_refused_until_it_is_signed_again(organization):
    agent, tool = factories.agent(organization), factories.tool(organization)
    keys.distrust_key(
        organization=organization, key_id=tool.version.key_id, by=actor_of(organization)
    )
    with pytest.raises(Refused) as refusal:
        factories.execution(agent)
    assert refusal.value.code == SIGNATURE_INVALID
    again = verification.resign(tool=tool, by=actor_of(organization))
    assert (again.version.number, again.version.label) == (2, "1.0.1")
    assert again.version.digest == tool.version.digest
    factories.execution(agent)


def test_no_edit_of_its_row_makes_a_distrusted_key_good(organization):
    tool = factories.tool(organization)
    keys.distrust_key(
        organization=organization, key_id=tool.version.key_id, by=actor_of(organization)
    )
    own = "UPDATE tools_signingkey SET distrusted_at = NULL, retired_at = NULL "
    write(f"{own} WHERE organization_id = %s", organization.pk)
    assert flaw(organization)


def test_who_writes_the_database_alone_makes_no_key(organization):
    version = factories.tool(organization).version
    own = signing.PrivateSigningKey.new()
    SigningKey.objects.filter(organization=organization).update(retired_at="2026-01-01T00:00Z")
    SigningKey.objects.create(
        organization=organization, key_id=own.key_id, public=own.public, sealed=b"x",
        voucher=own.sign({"a": 1}),
    )  # fmt: skip
    said = catalog.statement_of(
        organization=organization.slug, tool=version.tool_id, name="echo",
        number=1, label=version.label,
        version_digest=version.digest, origin=version.origin,
    )  # fmt: skip
    edit(version, key_id=own.key_id, signature=own.sign(said))
    assert flaw(organization)
    assert factories.tool(organization, "later").version.key_id != own.key_id


def test_another_organizations_key_is_not_taken_over(organization):
    other = factories.organization("elsewhere")
    factories.tool(organization)
    row = SigningKey.objects.get(organization=organization)
    write(
        "UPDATE tools_signingkey SET organization_id = %s, retired_at = now() WHERE id = %s",
        other.pk,
        row.pk,
    )
    assert row.key_id not in keys.keys_of(other.pk)
    assert flaw(organization)


def test_a_tool_that_was_rolled_back_is_found_until_an_operator_accepts_it(organization):
    tool = factories.tool(organization)
    first = tool.version
    catalog.update_tool(
        tool=tool, definition=factories.definition(description="New."), by=actor_of(organization)
    )
    remember_versions(organization)
    write("UPDATE tools_tool SET version_id = %s WHERE id = %s", first.pk, tool.pk)
    assert flaw(organization)
    with pytest.raises(Conflict):
        catalog.update_tool(
            tool=tool, definition=factories.definition(description="X."), by=actor_of(organization)
        )
    assert verification.wrong_in(organization)[1][0].problem == "rolled_back"
    accepted = verification.accept_rollback(organization=organization, by=actor_of(organization))
    assert accepted == ["echo"]
    assert not flaw(organization)


def test_a_deleted_tool_lends_no_version_to_the_next_of_its_name(organization):
    old = factories.tool(organization, description="As it was.")
    catalog.delete_tool(tool=old, by=actor_of(organization))
    tool = factories.tool(organization)
    write("UPDATE tools_toolversion SET number = 9, label = '9' WHERE id = %s", tool.version.pk)
    write("UPDATE tools_toolversion SET tool_id = %s WHERE id = %s", tool.pk, old.version.pk)
    write("UPDATE tools_tool SET version_id = %s WHERE id = %s", old.version.pk, tool.pk)
    assert flaw(organization)


def test_a_deleted_tool_does_not_come_back_by_an_edit(
    organization, django_capture_on_commit_callbacks
):
    tool = factories.tool(organization)
    with django_capture_on_commit_callbacks(execute=True):
        catalog.delete_tool(tool=tool, by=actor_of(organization))
    assert verification.wrong_in(organization)[1] == []
    write("UPDATE tools_tool SET deleted_at = NULL, status = 'active' WHERE id = %s", tool.pk)
    assert flaw(organization)
    assert verification.wrong_in(organization)[1][0].problem == "rolled_back"


def test_a_key_that_is_made_while_a_catalog_is_read_is_known(organization):
    tool = factories.tool(organization)
    new = factories.definition(description="New.")
    done = []

    def meanwhile(execute, sql, params, many, context):
        if 'FROM "tools_tool"' in sql and not done:
            done.append(sql)
            keys.rotate_key(organization=organization, by=actor_of(organization))
            catalog.update_tool(tool=tool, definition=new, by=actor_of(organization))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        found = snapshot(organization).tools["echo"]
    assert done
    assert (found.version, found.flaw) == ("1.0.1", "")


@pytest.mark.parametrize("number", [2**53, -(2**53), 1e16, 1e300, -0.0, 5e-324, 0.1])
def test_every_number_is_still_what_was_signed_when_the_database_gives_it_back(
    organization, number
):
    factories.tool(organization, metadata={"number": number})
    assert not flaw(organization)


def test_a_patch_takes_nothing_back_that_was_said_meanwhile(organization, admin_api):
    tool = factories.tool(organization)
    stricter = tool.version.definition | {"requires_confirmation": True}
    done = []

    def meanwhile(execute, sql, params, many, context):
        if "UPDATE tools_organization SET revision" in sql and not done:
            done.append(sql)
            catalog.update_tool(tool=tool, definition=stricter, by=actor_of(organization))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        answer = admin_api.patch("/tools/echo", {"description": "New."})
    assert done and answer.status_code == 200
    assert (answer.json()["description"], answer.json()["requires_confirmation"]) == ("New.", True)


def test_an_edit_of_an_earlier_version_does_not_make_a_person_its_author(organization):
    tool = factories.tool(organization, metadata={"origin": "agent"})
    assert tool.version.origin == Origin.AGENT
    first = tool.version
    other = factories.definition(implementation={"source": "def main(p):\n    return 2\n"})
    tool = catalog.update_tool(tool=tool, definition=other, by=actor_of(organization))
    edit(first, origin="person")
    tool = catalog.update_tool(
        tool=tool, definition=factories.definition(), by=actor_of(organization)
    )
    assert tool.version.origin == Origin.IMPORT


def test_what_was_rolled_back_is_not_handed_on(organization):
    tool = factories.tool(organization)
    first = tool.version
    new = factories.definition(description="New.")
    catalog.update_tool(tool=tool, definition=new, by=actor_of(organization))
    remember_versions(organization)
    write("UPDATE tools_tool SET version_id = %s WHERE id = %s", first.pk, tool.pk)
    assert exported(organization).left_out == ["echo"]
    tool = catalog.find_tool(organization, "echo")
    with pytest.raises(Conflict):
        config_items.item_value(tool)


@pytest.mark.parametrize("definition", ["[]", "null", '{"name": "echo"}'])
def test_a_person_can_look_at_what_is_no_definition_any_more(
    organization, admin_api, admin_client, definition
):
    version = factories.tool(organization).version
    edit(version, definition=definition)
    registry.forget()
    found = admin_api.get("/tools/echo/versions").json()["results"]
    assert found[0]["definition"] == json.loads(definition)
    assert admin_api.get("/tools/echo").json()["authentic"] is False
    for method, path, body in (
        ("patch", "/tools/echo", {"description": "x"}),
        ("put", "/tools/echo", factories.definition(description="x")),
    ):
        assert getattr(admin_api, method)(path, body).status_code == 409
    assert admin_api.get("/tools/echo/difference?from=1.0.0").status_code == 200
    assert admin_client.get("/editor/echo/").status_code == 409


def test_a_rollback_is_not_signed_again_with_its_distrusted_key(organization):
    tool = factories.tool(organization)
    first = tool.version
    keys.rotate_key(organization=organization, by=actor_of(organization))
    catalog.update_tool(
        tool=tool, definition=factories.definition(description="New."), by=actor_of(organization)
    )
    remember_versions(organization)
    keys.distrust_key(organization=organization, key_id=first.key_id, by=actor_of(organization))
    write("UPDATE tools_tool SET version_id = %s WHERE id = %s", first.pk, tool.pk)
    with pytest.raises(Conflict):
        verification.resign(tool=tool, by=actor_of(organization))
    verification.accept_rollback(organization=organization, by=actor_of(organization))
    verification.resign(tool=tool, by=actor_of(organization))
    assert not flaw(organization)


def test_a_tool_with_another_ones_version_is_reported(organization):
    tool, other = factories.tool(organization), factories.tool(organization, "other")
    write("UPDATE tools_tool SET version_id = %s WHERE id = %s", other.version.pk, tool.pk)
    assert [(one.tool, one.problem) for one in verification.wrong_in(organization)[1]] == [
        ("echo", "altered")
    ]
    write("UPDATE tools_tool SET version_id = NULL WHERE id = %s", tool.pk)
    assert [one.tool for one in verification.wrong_in(organization)[1]] == ["echo"]


def test_distrust_is_noted_even_where_the_row_says_so_already(organization):
    tool = factories.tool(organization)
    said = "UPDATE tools_signingkey SET distrusted_at = now(), retired_at = now() "
    write(f"{said} WHERE organization_id = %s", organization.pk)
    keys.distrust_key(
        organization=organization, key_id=tool.version.key_id, by=actor_of(organization)
    )
    own = "UPDATE tools_signingkey SET distrusted_at = NULL, retired_at = NULL "
    write(f"{own} WHERE organization_id = %s", organization.pk)
    assert flaw(organization)


def test_a_version_without_a_valid_signature_is_not_a_base_for_changes(organization):
    tool = factories.tool(organization)
    edit(tool.version, label="9.9.9")
    tool = Tool.objects.select_related("version", "organization").get(pk=tool.pk)
    for change in (
        lambda: catalog.update_tool(
            tool=tool, definition=factories.definition(description="X."), by=actor_of(organization)
        ),
        lambda: catalog.restore_version(tool=tool, label="9.9.9", by=actor_of(organization)),
        lambda: verification.resign(tool=tool, by=actor_of(organization)),
    ):
        with pytest.raises(Conflict):
            change()
    assert tool.versions.count() == 1
    catalog.delete_tool(tool=tool, by=actor_of(organization))


def test_a_genuine_version_is_restored_over_an_altered_one(organization):
    tool = factories.tool(organization)
    tool = catalog.update_tool(
        tool=tool, definition=factories.definition(description="New."), by=actor_of(organization)
    )
    edit(tool.version, origin="import")
    catalog.restore_version(tool=tool, label="1.0.0", by=actor_of(organization))
    assert not flaw(organization)


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("definition", ["{}", "[]", "null", '"x"', '{"name": "echo"}'])
def test_what_is_no_definition_any_more_closes_one_tool_alone(organization, definition):
    agent, tool = factories.agent(organization), factories.tool(organization)
    factories.tool(organization, "other")
    edit(tool.version, definition=definition)
    registry.forget()
    with pytest.raises(Refused) as refusal:
        factories.execution(agent)
    assert refusal.value.code == SIGNATURE_INVALID
    factories.execution(agent, "other")


def test_rotation_and_distrust_are_on_record(organization):
    tool = factories.tool(organization)
    keys.distrust_key(
        organization=organization, key_id=tool.version.key_id, by=actor_of(organization)
    )
    keys.rotate_key(organization=organization, by=actor_of(organization))
    codes = AuditRecord.objects.filter(organization=organization.slug).values_list(
        "code", flat=True
    )
    assert {"ADMIN.SIGNING_KEY_CREATE", "ADMIN.SIGNING_KEY_DISTRUST"} <= set(codes)


def _text(dice, text):
    at = dice.randrange(len(text))
    return (
        text[:at]
        + dice.choice([c for c in "0123456789abcdefXYZ" if c != text[at]])
        + text[at + 1 :]
    )


def _definition(dice, version, private):
    raw = dict(version.definition)
    key = dice.choice(sorted(raw))
    raw[key] = {"changed": dice.random()} if dice.random() < 0.5 else [raw[key]]
    return {"definition": raw}


def _resigned(dice, version, private):
    """Signed with the attacker's own key; everything else is correct."""
    raw = version.definition | {"description": f"Other {dice.random()}"}
    digest = catalog.definition_digest(raw)
    said = catalog.statement_of(
        organization=version.tool.organization.slug, tool=version.tool_id, name="echo",
        number=version.number, label=version.label, version_digest=digest, origin=version.origin,
    )  # fmt: skip
    key_id = dice.choice([private.key_id, version.key_id])
    return {"definition": raw, "digest": digest, "signature": private.sign(said), "key_id": key_id}


TAMPERINGS = [
    _definition,
    _resigned,
    lambda dice, v, k: {"digest": _text(dice, v.digest)},
    lambda dice, v, k: {"label": f"{dice.randrange(9)}.0.{dice.randrange(2, 99)}"},
    lambda dice, v, k: {"number": v.number + dice.randrange(1, 99)},
    lambda dice, v, k: {"origin": dice.choice(sorted({*Origin.values} - {v.origin}))},
    lambda dice, v, k: {"signature": _text(dice, v.signature[:80]) + v.signature[80:]},
    lambda dice, v, k: {"key_id": dice.choice([k.key_id, keys.installation_key().key_id])},
]  # fmt: skip


def test_five_hundred_tamperings_are_each_found(organization):
    version = factories.tool(organization).version
    good, private = keys.keys_of(organization.pk), signing.PrivateSigningKey.new()
    facts = {f.attname: getattr(version, f.attname) for f in ToolVersion._meta.concrete_fields}
    dice = random.Random(6)
    place = {"organization": organization.slug, "name": "echo", "keys": good}
    assert signed(**place, version=version)
    for turn in range(500):
        change = TAMPERINGS[turn % len(TAMPERINGS)](dice, version, private)
        assert not signed(**place, version=SimpleNamespace(**facts | change)), change


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampered_with_it_does_not_run(organization, tampering):
    agent, version = factories.agent(organization), factories.tool(organization).version
    change = tampering(random.Random(1), version, signing.PrivateSigningKey.new())
    columns = {key: json.dumps(one) if key == "definition" else one for key, one in change.items()}
    edit(version, **columns)
    registry.forget()
    with pytest.raises(Refused) as refusal:
        factories.execution(agent)
    assert refusal.value.code == SIGNATURE_INVALID
