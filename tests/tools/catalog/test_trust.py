"""Who vouches for a version, and what becomes of what nobody vouches for."""

import random

import pytest
from django.db import connection, transaction

from audit.models import AuditRecord
from tests import factories
from tests.tools.database import tamper
from tools.catalog import actions, drift, trust
from tools.catalog.registry import registry
from tools.catalog.versions import signing_key
from tools.definitions import signing
from tools.errors import Conflict, NotFound
from tools.execution.pipeline import perform
from tools.models import Execution, Organization, SigningKey, Tool, ToolVersion, UpstreamChange

pytestmark = pytest.mark.django_db


def snapshot(organization):
    registry.forget()
    return registry.snapshot(organization.pk, 0)


def genuine(organization, name="echo"):
    here = snapshot(organization)
    return here.genuine(here.tools[name])


def changed(organization, tool, text):
    definition = factories.definition(description=text)
    return actions.update_tool(tool=tool, definition=definition, by=factories.by(organization))


def rotated(organization, **options):
    by = factories.by(organization)
    return trust.rotate_signing_key(organization=organization, by=by, **options)


def distrusted(organization, key_id):
    by = factories.by(organization)
    return trust.distrust_signing_key(organization=organization, key_id=key_id, by=by)


def behind(statement, *values):
    """What somebody with the database in hands does to a version."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE tools_toolversion DISABLE TRIGGER tool_version_never_changes")
        cursor.execute(statement, values)
        cursor.execute("ALTER TABLE tools_toolversion ENABLE TRIGGER tool_version_never_changes")


def test_a_version_is_signed_with_a_key_of_its_organization(organization):
    version = factories.tool(organization).version
    key = SigningKey.objects.current().get(organization=organization)
    assert (version.key_id, key.key_id != signing_key().key_id) == (key.key_id, True)
    assert genuine(organization)


def test_organizations_have_keys_of_their_own(organization):
    other = factories.organization("elsewhere")
    keys = {row.key_id for row in SigningKey.objects.all()}
    assert len(keys) == SigningKey.objects.count() >= 2
    assert factories.tool(other).version.key_id != factories.tool(organization).version.key_id


def test_what_the_installation_signed_before_stays_valid(organization):
    tool = factories.tool(organization)
    version, key = tool.version, signing_key()
    signature = trust._signature(tool, version, key)
    behind(
        "UPDATE tools_toolversion SET key_id = %s, signature = %s WHERE id = %s",
        key.key_id, signature, version.pk,
    )  # fmt: skip
    assert genuine(organization)


def test_old_versions_stay_valid_under_a_retired_key(organization):
    factories.tool(organization)
    rotated(organization, resign=False)
    assert SigningKey.objects.current().filter(organization=organization).count() == 1
    assert genuine(organization)


def test_what_a_distrusted_key_signed_is_invalid_until_it_is_signed_anew(organization):
    tool = factories.tool(organization)
    distrusted(organization, tool.version.key_id)
    assert not genuine(organization)
    trust.resign_tool(tool=tool, by=factories.by(organization), reason="read it")
    assert genuine(organization)
    assert AuditRecord.objects.filter(code="REG.TOOL_RESIGN", subject="echo").count() == 1


def test_a_rotation_signs_anew_what_was_good(organization):
    tool = factories.tool(organization)
    rotated(organization)
    distrusted(organization, tool.version.key_id)
    assert genuine(organization)


def test_a_rotation_does_not_vouch_for_what_was_altered(organization):
    tool = factories.tool(organization)
    tamper(tool.version, description="Tampered.")
    rotated(organization)
    distrusted(organization, tool.version.key_id)
    assert not genuine(organization)


def test_what_was_altered_is_not_signed_anew(organization):
    tool = factories.tool(organization)
    tamper(tool.version, description="Tampered.")
    with pytest.raises(Conflict):
        trust.resign_tool(tool=tool, by=factories.by(organization))


def test_an_altered_version_is_not_restored(organization):
    tool = factories.tool(organization)
    first = tool.version
    changed(organization, tool, "second")
    tamper(first, description="Tampered.")
    with pytest.raises(Conflict):
        actions.restore_version(tool=tool, label="1.0.0", by=factories.by(organization))


def test_a_key_that_is_not_there_cannot_be_distrusted(organization):
    with pytest.raises(NotFound):
        distrusted(organization, "0" * 16)


def test_a_public_key_that_the_installation_does_not_vouch_for_counts_nothing(organization):
    """Whoever writes to the database alone signs with a key of their own."""
    tool = factories.tool(organization)
    foreign = signing.SigningKey.generate()
    SigningKey.objects.filter(organization=organization).update(
        key_id=foreign.key_id, public_key=foreign.public_key
    )
    behind(
        "UPDATE tools_toolversion SET key_id = %s, signature = %s WHERE id = %s",
        foreign.key_id, trust._signature(tool, tool.version, foreign), tool.version.pk,
    )  # fmt: skip
    assert not genuine(organization)
    with pytest.raises(Conflict):
        changed(organization, tool, "second")


def test_a_key_of_another_organization_counts_nothing(organization):
    tool = factories.tool(organization)
    other = factories.organization("elsewhere")
    theirs = SigningKey.objects.get(organization=other)
    SigningKey.objects.filter(pk=theirs.pk).update(retired_at=theirs.created_at)
    SigningKey.objects.filter(pk=theirs.pk).update(organization=organization)
    assert theirs.key_id not in snapshot(organization).signing_keys
    assert tool.version.key_id in snapshot(organization).signing_keys


def test_an_older_version_in_the_place_of_the_current_one_is_noticed(agent, organization):
    tool = factories.tool(organization)
    first = tool.version
    changed(organization, tool, "second")
    Tool.objects.filter(pk=tool.pk).update(version=first)
    registry.forget()
    execution = factories.execution(agent)
    perform(execution.pk)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.status, done.error_code) == ("PermissionDenied", "SIGNATURE_INVALID")
    assert [one.good for one in trust.check_versions(organization) if one.tool == "echo"] == [
        False, True,
    ]  # fmt: skip


def test_a_process_that_knew_the_key_learns_that_it_is_distrusted(organization):
    tool = factories.tool(organization)
    fresh = Organization.objects.get(pk=organization.pk)
    here = registry.snapshot(fresh.pk, fresh.revision)
    assert here.genuine(here.tools["echo"])
    distrusted(organization, tool.version.key_id)
    fresh.refresh_from_db()
    there = registry.snapshot(fresh.pk, fresh.revision)
    assert not there.genuine(there.tools["echo"])


def test_each_of_500_tamperings_is_found_before_the_tool_runs(organization):
    tool = factories.tool(organization)
    first = tool.version
    tool = changed(organization, tool, "second")
    chance = random.Random(6)
    for at in range(500):
        with transaction.atomic():
            said = _tampered(chance, tool, first)
            assert not genuine(organization), (at, said)
            transaction.set_rollback(True)
    assert genuine(organization)


def _tampered(chance, tool, first):
    """One thing somebody could do to the rows; says what."""
    which = chance.choice([*VERSION, *TOOL, "definition", "rollback"])
    version = ToolVersion.objects.get(pk=tool.version_id)
    if which == "rollback":
        Tool.objects.filter(pk=tool.pk).update(version=first)
    elif which == "definition":
        field = chance.choice(sorted(set(version.definition) - {"name"}))
        tamper(version, **{field: _other(chance, version.definition[field])})
        return which, field
    elif which in TOOL:
        value = TOOL[which](chance, getattr(tool, which))
        Tool.objects.filter(pk=tool.pk).update(**{which: value})
    else:
        value = VERSION[which](chance, getattr(version, which))
        behind(f"UPDATE tools_toolversion SET {which} = %s WHERE id = %s", value, version.pk)
    return (which,)


def _hex(chance, length):
    return f"{chance.getrandbits(4 * length):0{length}x}"


def _one_character(chance, text):
    at = chance.randrange(len(text) - 4)  # the last ones may mean the same bytes
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


def _other(chance, value):
    """Another value of the same shape, so that what reads definitions still can."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + chance.randint(1, 9)
    if isinstance(value, str):
        return value + chance.choice(["x", " ", "\u200b", "\u0430"])
    if isinstance(value, list):
        return [*value, _hex(chance, 4)]
    if isinstance(value, dict):
        return value | {f"x{_hex(chance, 4)}": 1}
    return _hex(chance, 4)


VERSION = {
    "digest": lambda chance, old: f"sha256:{_hex(chance, 64)}",
    "label": lambda chance, old: f"{old}{chance.randint(1, 99)}",
    "number": lambda chance, old: old + chance.randint(1, 99),
    "origin": lambda chance, old: chance.choice(["agent", "import"]),
    "key_id": lambda chance, old: _hex(chance, 16),
    "signature": _one_character,
}
TOOL = {
    "head_key_id": lambda chance, old: _hex(chance, 16),
    "head_signature": _one_character,
}


def test_what_was_edited_into_no_definition_closes_that_tool_alone(agent, organization):
    tool = factories.tool(organization)
    execution = factories.execution(agent)
    tamper(tool.version, parameters="none")
    registry.forget()
    perform(execution.pk)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.status, done.error_code) == ("PermissionDenied", "SIGNATURE_INVALID")


def test_a_change_that_was_altered_after_it_was_read_is_not_approved(organization):
    tool, by = factories.tool(organization), factories.by(organization)
    seen = factories.definition(description="What the upstream says.")
    change = drift.note_upstream(tool=tool, seen=seen, by=by)
    altered = change.seen | {"description": "What somebody else says."}
    UpstreamChange.objects.filter(pk=change.pk).update(seen=altered)
    with pytest.raises(Conflict):
        drift.approve_change(change=change, read_digest=change.digest, by=by)
