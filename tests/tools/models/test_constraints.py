"""Database constraints reject invalid rows, whatever code writes them."""

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from uuid import uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from tests import factories
from tools.models import (
    Agent,
    EgressCredential,
    Execution,
    IdempotencyKey,
    LicenseTier,
    Organization,
    SandboxProfile,
    Token,
    Tool,
    ToolGroup,
    User,
)
from tools.models.execution_event import StoredEvent


@pytest.fixture
def execution(agent, organization):
    factories.tool(organization)
    return factories.execution(agent)


def refused(constraint):
    return pytest.raises(IntegrityError, match=constraint)


def idempotency_key(agent, **fields):
    return IdempotencyKey.objects.create(
        organization=agent.organization, user=agent.service_account, attempt=uuid4(), **fields
    )


EXECUTIONS = [
    ({"status": "Nonsense"}, "execution_(status_is_known|over_means_completed)"),
    ({"status": "Success"}, "execution_over_means_completed"),
    ({"completed_at": timezone.now()}, "execution_over_means_completed"),
    ({"status": "Running"}, "execution_running_means_leased"),
    ({"lease_until": timezone.now()}, "execution_running_means_leased"),
    (
        {
            "status": "Running",
            "lease_until": timezone.now(),
            "started_at": timezone.now(),
            "fence": 0,
        },
        "execution_running_means_leased",
    ),
    ({"output": {"a": 1}}, "execution_output_means_success"),
    (
        {"status": "Failed", "completed_at": timezone.now(), "output": 1},
        "execution_output_means_success",
    ),
    (
        {"status": "Success", "completed_at": timezone.now(), "error_code": "X"},
        "execution_success_has_no_error",
    ),
    ({"timeout_s": 0}, "execution_timeout_positive"),
]
TOKENS = [
    ({"scopes": []}, "token_has_a_scope"),
    ({"scopes": ["everything"]}, "token_scopes_are_known"),
    ({"expires_at": timezone.now() - timedelta(days=400)}, "token_ends_after_it_began"),
    ({"secret_hash": "tcr_plain"}, "token_hash_is_a_hash"),
]
TOOLS = [
    ({"name": "with space"}, "tool_name_is_plain"),
    ({"status": "odd"}, "tool_status_is_known"),
    ({"type": "magic"}, "tool_type_is_known"),
    ({"deleted_at": timezone.now()}, "deleted_tool_is_disabled"),
]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(("fields", "constraint"), EXECUTIONS)
def test_a_contradictory_execution_is_refused(execution, fields, constraint):
    with connection.cursor() as cursor:  # so that the constraint rejects it, not the trigger
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE tools_execution DISABLE TRIGGER execution_moves_legally")
    with refused(constraint):
        Execution.objects.filter(pk=execution.pk).update(**fields)


CONTRADICTIONS: list[tuple[str, Callable[[Organization, Agent], object]]] = [
    *((constraint, lambda place, agent, fields=fields: (
        factories.token(agent.service_account),
        Token.objects.filter(user=agent.service_account).update(**fields)))
      for fields, constraint in TOKENS),
    *((constraint, lambda place, agent, fields=fields:
        Tool.objects.filter(pk=factories.tool(place).pk).update(**fields))
      for fields, constraint in TOOLS),
    *(("group_name_is_no_wildcard", lambda place, agent, name=name:
        ToolGroup.objects.create(organization=place, name=name)) for name in ("*", "")),
    ("group_name_once", lambda place, agent:
        ToolGroup.objects.create(organization=place, name="default")),
    ("tool_name_once_per_organization", lambda place, agent:
        Tool.objects.create(organization=place, name="ECHO", type="code",
                            revision=factories.tool(place, "Echo").revision)),
    ("agent_slug_once_per_organization", lambda place, agent:
        Agent.objects.create(organization=place, slug=agent.slug,
                             service_account=factories.person(place))),
    *(("organization_slug_is_plain", lambda place, agent, slug=slug:
        Organization.objects.create(slug=slug, name="x", tier=place.tier))
      for slug in ("Upper", "a b", "-a", "a-", "", "../x")),
    *(("service_account_is_no_administrator", lambda place, agent, field=field:
        User.objects.filter(pk=agent.service_account.pk).update(**{field: True}))
      for field in ("is_staff", "is_superuser")),
    ("tier_profiles_need_unlimited_tools", lambda place, agent:
        LicenseTier.objects.filter(name="Teams").update(custom_sandbox_profiles=True)),
    ("execution_idempotency_key_once", lambda place, agent: (
        factories.tool(place),
        [factories.execution(agent, idempotency_key="k") for _ in range(2)])),
    ("idempotency_key_once", lambda place, agent:
        [idempotency_key(agent, key="k") for _ in range(2)]),
    ("idempotency_answer_has_status", lambda place, agent:
        idempotency_key(agent, answer="{}")),
    (r"tools_executionevent_\w+_pkey", lambda place, agent: (
        factories.tool(place),
        StoredEvent.objects.bulk_create(
            StoredEvent(execution=execution, sequence=1, type="Started")
            for execution in [factories.execution(agent)] * 2))),
    ("event_type_is_known", lambda place, agent: (
        factories.tool(place),
        StoredEvent.objects.create(
            execution=factories.execution(agent), sequence=1, type="Exploded"))),
]  # fmt: skip


@pytest.mark.parametrize(("constraint", "write"), CONTRADICTIONS)
def test_a_contradictory_row_is_refused(organization, agent, constraint, write):
    with refused(constraint):
        write(organization, agent)


def test_two_organizations_may_have_a_tool_of_one_name(organization):
    first, second = factories.tool(organization), factories.tool(factories.organization("second"))
    assert first.name == second.name


def test_two_callers_may_use_one_idempotency_key(agent, organization):
    factories.tool(organization)
    other = factories.agent(organization)
    keys = [factories.execution(a, idempotency_key="k").idempotency_key for a in (agent, other)]
    assert keys == ["k", "k"]


@pytest.mark.parametrize("change", [{"status": "Success"}, {"output": 1}, {"error_message": "x"}])
def test_an_execution_that_is_over_never_changes(execution, change):
    row = Execution.objects.filter(pk=execution.pk)
    row.update(status="Cancelled", completed_at=timezone.now())
    with pytest.raises(DatabaseError, match="is over"):
        row.update(**change)


@pytest.mark.parametrize(
    "change",
    [{"label": "9"}, {"digest": "sha256:" + "0" * 64}, {"definition": {}}, {"signature": "x"}],
)
def test_a_tool_version_never_changes(organization, change):
    tool = factories.tool(organization)
    with pytest.raises(DatabaseError, match="never changed"):
        tool.versions.update(**change)


def test_a_tool_version_is_never_removed(organization):
    tool = factories.tool(organization)
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        connection.cursor().execute("DELETE FROM tools_toolversion WHERE tool_id = %s", [tool.pk])
    assert tool.versions.count() == 1


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"number": 0}, "tool_version_counts_from_one"),
        ({"digest": "md5:x"}, "tool_version_digest_is_sha256"),
        ({"signature": ""}, "tool_version_is_signed"),
        ({"key_id": ""}, "tool_version_is_signed"),
        ({"number": 1}, "tool_version_number_once"),
        ({"label": "1.0.0"}, "tool_version_label_once"),
        ({"origin": "nobody"}, "tool_version_origin_is_known"),
    ],
)
def test_a_contradictory_version_is_refused(organization, fields, constraint):
    first = factories.tool(organization).version
    second = {
        "tool_id": first.tool_id, "number": 2, "label": "2", "definition": first.definition,
        "digest": first.digest, "key_id": first.key_id, "signature": first.signature,
    }  # fmt: skip
    with refused(constraint):
        type(first).objects.create(pk=uuid4(), **{**second, **fields})


PROFILES = [
    ({"name": "a/b"}, "profile_name_is_plain"),
    ({"name": ""}, "profile_name_is_plain"),
    ({"backend": "docker"}, "profile_backend_is_known"),
    ({"minimum_isolation": "Weak"}, "profile_isolation_is_known"),
    ({"max_memory_bytes": 0}, "profile_limits_are_positive"),
    ({"max_cpu_s": -1}, "profile_limits_are_positive"),
    ({"max_processes": 0}, "profile_limits_are_positive"),
    ({"max_disk_bytes": 0}, "profile_limits_are_positive"),
    ({"max_files": 0}, "profile_limits_are_positive"),
    ({"quota_bytes": 0}, "profile_limits_are_positive"),
    ({"quota_files": 0}, "profile_limits_are_positive"),
    ({"backend": "degraded", "allow_network": True}, "profile_backend_has_that_network"),
    ({"backend": "monty", "allow_network": True}, "profile_backend_has_that_network"),
    ({"allowed_paths": {}}, "profile_lists_are_lists"),
    ({"allowed_hosts": "*"}, "profile_lists_are_lists"),
]


@pytest.mark.parametrize(("fields", "constraint"), PROFILES)
def test_a_contradictory_sandbox_profile_is_refused(organization, fields, constraint):
    with refused(constraint):
        SandboxProfile.objects.create(organization=organization, **{"name": "mine", **fields})


def test_a_sandbox_profile_is_there_once_per_organization(organization):
    SandboxProfile.objects.create(organization=organization, name="mine")
    SandboxProfile.objects.create(organization=factories.organization("third"), name="mine")
    with refused("profile_name_once"):
        SandboxProfile.objects.create(organization=organization, name="mine")


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"name": ".."}, "credential_name_is_plain"),
        ({"header": "A: b"}, "credential_header_is_one"),
    ],
)
def test_a_contradictory_credential_is_refused(organization, fields, constraint):
    given = {"name": "key", "header": "X-Key", "sealed": b"x", **fields}
    with refused(constraint):
        EgressCredential.objects.create(organization=organization, **given)


def test_an_organization_demands_a_level_that_there_is(organization):
    with refused("organization_isolation_is_known"):
        Organization.objects.filter(pk=organization.pk).update(minimum_isolation="Weak")


def test_a_version_without_an_author_has_none(organization):
    """The row of an insert without an origin, as earlier versions wrote it."""
    version = factories.tool(organization).version
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO tools_toolversion (id, tool_id, number, label, definition, digest, key_id,
                                           signature, created_at, created_by)
            SELECT gen_random_uuid(), tool_id, 2, '2', definition, digest, key_id, signature,
                   created_at, created_by
            FROM tools_toolversion WHERE id = %s RETURNING origin
            """,
            [version.pk],
        )
        assert cursor.fetchone() == ("import",)


def test_versions_from_before_origins_were_written_by_people_or_the_product(organization):
    tool = factories.tool(organization)
    builtin = organization.tools.get(name="read_file")
    migration = import_module("tools.migrations.0004_sandbox_profiles")
    with connection.cursor() as cursor:
        cursor.execute(migration.SAY_WHO)
    found = [row.versions.get().origin for row in (tool, builtin)]
    assert found == ["person", "product"]
    with pytest.raises(DatabaseError, match="never changed"):
        tool.versions.update(origin="agent")
