"""Writing sandbox profiles: permissions, required fields, and the errors that are shown."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.snapshots import current_catalog
from tools.accounts import account_actions as policy
from tools.catalog import actions
from tools.catalog.sandbox import credentials, profiles
from tools.catalog.sandbox.profiles import sandbox_client
from tools.errors import Conflict, Forbidden, InvalidDefinition, Malformed, Unavailable
from tools.licensing import tiers
from tools.models import LicenseTier, SandboxProfile

pytestmark = pytest.mark.django_db

JAVASCRIPT = {"language": "javascript", "source": "export function main(p) { return p }"}


def written(organization, name="mine", everywhere=True, **fields):
    return profiles.create_profile(
        organization=organization,
        profile={"name": name, **fields},
        by=factories.actor(organization),
        everywhere=everywhere,
    )


def changed(row, **fields):
    wanted = profiles.written(row) | fields
    return profiles.replace_profile(
        row=row, profile=wanted, by=factories.actor(row.organization), everywhere=True
    )


def codes(organization):
    found = AuditRecord.objects.filter(organization=organization.slug, code__contains="PROFILE")
    return list(found.order_by("id").values_list("code", flat=True))


def fields_of(error):
    return [flaw["field"] for flaw in error.value.details["errors"]]


@pytest.fixture
def directory():
    """Outside /tmp, which no profile can share, and readable by the sandbox's user."""
    place = Path(tempfile.mkdtemp(prefix="tc-profile-", dir="/var/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def core(organization):
    """Lowers the organization's tier to one without custom sandbox profiles."""

    def lower():
        tier = LicenseTier.objects.get(name="Teams")
        tiers.set_tier(organization=organization, tier=tier, by=factories.actor(organization))

    return lower


def test_a_profile_is_seen_with_the_next_revision(organization):
    before = current_catalog(organization)
    written(organization, allow_network=True, allowed_hosts=["example.com"], max_cpu_time="PT2S")
    after = current_catalog(organization)
    assert before.revision < after.revision and not before.profiles
    assert (after.profiles["mine"].cpu_s, after.profiles["mine"].allow_network) == (2, True)
    assert codes(organization) == ["REG.PROFILE_CREATE"]


def test_a_changed_profile_is_seen_with_the_next_revision(organization):
    row = written(organization)
    assert current_catalog(organization).profiles["mine"].processes is None
    changed(row, max_processes=4)
    assert current_catalog(organization).profiles["mine"].processes == 4
    assert codes(organization) == ["REG.PROFILE_CREATE", "REG.PROFILE_CHANGE"]


def test_a_profile_that_is_not_named_is_deleted(organization):
    profiles.delete_profile(row=written(organization), by=factories.actor(organization))
    assert not current_catalog(organization).profiles
    assert codes(organization)[-1] == "REG.PROFILE_DELETE"


def test_a_profile_that_tools_name_stays(organization):
    row = written(organization)
    factories.tool(organization, constraints={"sandbox_profile": "mine"})
    with pytest.raises(Conflict) as caught:
        profiles.delete_profile(row=row, by=factories.actor(organization))
    assert (caught.value.code, caught.value.details["dependants"]) == ("has_dependants", ["echo"])
    assert SandboxProfile.objects.filter(pk=row.pk).exists()


def test_a_deleted_tool_names_nothing(organization):
    row, by = written(organization), factories.actor(organization)
    tool = factories.tool(organization, constraints={"sandbox_profile": "mine"})
    actions.delete_tool(tool=tool, by=by)
    profiles.delete_profile(row=row, by=by)
    assert not SandboxProfile.objects.filter(pk=row.pk).exists()


def test_a_name_is_there_once_and_never_changes(organization):
    row = written(organization)
    with pytest.raises(Conflict):
        written(organization)
    with pytest.raises(Malformed) as caught:
        changed(row, name="other")
    assert fields_of(caught) == ["name"]


def test_a_tier_without_profiles_writes_none(organization, core):
    row = written(organization)
    core()
    for attempt in (lambda: written(organization, "second"), lambda: changed(row, proxy=True)):
        with pytest.raises(Forbidden) as caught:
            attempt()
        assert caught.value.code == "license_excludes_profiles"
    profiles.delete_profile(row=row, by=factories.actor(organization))


def test_a_tier_without_profiles_names_none(organization, core):
    written(organization)
    core()
    with pytest.raises(Forbidden) as caught:
        factories.tool(organization, constraints={"sandbox_profile": "mine"})
    assert caught.value.code == "license_excludes_profiles"
    assert not organization.tools.filter(name="echo").exists()


def test_a_definition_names_a_profile_of_its_own_organization(organization):
    written(factories.organization("profiles-elsewhere"), "theirs")
    with pytest.raises(InvalidDefinition) as caught:
        factories.tool(organization, constraints={"sandbox_profile": "theirs"})
    assert fields_of(caught) == ["constraints.sandbox_profile"]


def test_a_version_whose_profile_is_gone_is_not_restored(organization):
    row, by = written(organization), factories.actor(organization)
    tool = factories.tool(organization, constraints={"sandbox_profile": "mine"})
    actions.update_tool(tool=tool, definition=factories.definition(), by=by)
    profiles.delete_profile(row=row, by=by)
    with pytest.raises(InvalidDefinition):
        actions.restore_version(tool=tool, label="1.0.0", by=by)
    assert tool.versions.count() == 2


@pytest.mark.parametrize("backend", ["monty", "degraded", "container"])
def test_javascript_runs_in_a_process_of_its_own_and_nowhere_else(organization, backend):
    written(organization, backend=backend)
    factories.tool(organization, "python", constraints={"sandbox_profile": "mine"})
    with pytest.raises(InvalidDefinition) as caught:
        factories.tool(
            organization, implementation=JAVASCRIPT, constraints={"sandbox_profile": "mine"}
        )
    assert fields_of(caught) == ["constraints.sandbox_profile"]


@pytest.mark.parametrize("backend", ["monty", "degraded", "container"])
def test_a_profile_of_javascript_tools_stays_a_process(organization, backend):
    row = written(organization)
    factories.tool(organization, implementation=JAVASCRIPT, constraints={"sandbox_profile": "mine"})
    with pytest.raises(Malformed) as caught:
        changed(row, backend=backend)
    assert fields_of(caught) == ["backend"]
    assert SandboxProfile.objects.get(pk=row.pk).backend == "process"


def test_monty_runs_no_built_in(organization):
    row, by = written(organization), factories.actor(organization)
    builtin = actions.find_tool(organization, "read_file")
    named = actions.amended(builtin.version.definition, {"constraints": {"sandboxProfile": "mine"}})
    actions.update_tool(tool=builtin, definition=named, by=by)
    with pytest.raises(Malformed) as caught:
        changed(row, backend="monty")
    assert fields_of(caught) == ["backend"]


def test_a_credential_must_be_there_to_be_named(organization):
    hosts = ["a.example", {"host": "b.example", "credential": "key"}]
    with pytest.raises(Malformed) as caught:
        written(organization, allowed_hosts=hosts)
    assert fields_of(caught) == ["allowed_hosts[1].credential"]
    assert not SandboxProfile.objects.filter(organization=organization).exists()


def test_a_credential_that_is_named_stays(organization):
    by = factories.actor(organization)
    key = credentials.create_credential(
        organization=organization, credential={"name": "key", "header": "X", "value": "v"}, by=by
    )
    hosts = [{"host": "b.example", "credential": "key"}]
    written(organization, allowed_hosts=hosts)
    policy.set_allowed_hosts(organization=organization, hosts=hosts, by=by)
    with pytest.raises(Conflict) as caught:
        credentials.delete_credential(row=key, by=by)
    assert caught.value.details["dependants"] == [
        "sandbox-profile/mine", f"organization/{organization.slug}",
    ]  # fmt: skip


def test_paths_are_opened_by_who_will_mount_them(organization, directory):
    (directory / "table.csv").write_text("a,b")
    (directory / "link").symlink_to(directory / "table.csv")
    right = [{"path": str(directory)}, {"path": f"{directory}/table.csv"}]
    written(organization, "right", allowed_paths=right)
    wrong = [*right, {"path": f"{directory}/link"}, {"path": f"{directory}/missing"}]
    with pytest.raises(Malformed) as caught:
        written(organization, "wrong", allowed_paths=wrong)
    assert fields_of(caught) == ["allowed_paths[1].path", "allowed_paths[2].path"]
    assert not SandboxProfile.objects.filter(organization=organization, name="wrong").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="whoever owns it may write it")
def test_a_path_that_the_sandbox_may_not_write_is_not_shared_for_writing(organization, directory):
    with pytest.raises(Malformed, match="1 field is wrong"):
        written(organization, allowed_paths=[{"path": str(directory), "mode": "rw"}])


def test_without_sandboxd_no_path_is_taken_on_trust(organization, directory, settings):
    settings.SANDBOX_SOCKET = "/nowhere/s"
    sandbox_client.cache_clear()
    with pytest.raises(Unavailable) as caught:
        written(organization, allowed_paths=[{"path": str(directory)}])
    sandbox_client.cache_clear()
    assert (caught.value.code, caught.value.http_status) == ("sandbox_unreachable", 503)
    assert not SandboxProfile.objects.filter(organization=organization).exists()


def test_paths_outside_the_workspace_are_a_superusers_to_share(organization, directory):
    paths = [{"path": str(directory)}]
    with pytest.raises(Forbidden) as caught:
        written(organization, everywhere=False, allowed_paths=paths)
    assert caught.value.code == "not_permitted"
    row = written(organization, allowed_paths=paths)
    profiles.replace_profile(
        row=row, profile=profiles.written(row) | {"proxy": True}, by=factories.actor(organization)
    )
    assert SandboxProfile.objects.get(pk=row.pk).proxy


def test_paths_are_mounted_only_where_the_file_system_is_allowed(organization, directory):
    row = written(organization, allowed_paths=[{"path": str(directory)}])
    assert current_catalog(organization).profiles["mine"].mounts == ()
    changed(row, allow_filesystem=True)
    (mount,) = current_catalog(organization).profiles["mine"].mounts
    assert (mount.source, mount.target, mount.writable) == (str(directory), str(directory), False)


def test_an_organizations_hosts_are_read_like_a_profiles(organization):
    by = factories.actor(organization)
    with pytest.raises(Malformed) as caught:
        policy.set_allowed_hosts(organization=organization, hosts=["a b"], by=by)
    assert fields_of(caught) == ["allowed_hosts[0].host"]
    policy.set_allowed_hosts(organization=organization, hosts=["EXAMPLE.com"], by=by)
    assert current_catalog(organization).allowed_hosts == ("example.com",)


def test_paths_that_were_taken_away_meanwhile_are_not_put_back_unexamined(organization, directory):
    paths = [{"path": str(directory), "mode": "ro"}]
    row = written(organization, allow_filesystem=True, allowed_paths=paths)
    said, known, by = profiles.written(row), row.allowed_paths, factories.actor(organization)
    changed(row, allowed_paths=[])
    with pytest.raises(Conflict):
        profiles.keep_profile(row=row, profile=said, by=by, known_paths=known)
    row.refresh_from_db()
    assert row.allowed_paths == []
