"""User names are for display, and ownership refers to ids: renaming a user transfers nothing, and a
name that was used once is not assigned again."""

from importlib import import_module
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from tests import factories
from tests.tools.approval_requests import call_awaiting_approval
from tools.accounts import account_actions
from tools.accounts.callers import caller_of_user
from tools.accounts.login import single_sign_on
from tools.accounts.login.single_sign_on import ProviderIdentity
from tools.approvals import decisions
from tools.catalog.mcp import mcp_import, mcp_servers
from tools.catalog.mcp.mcp_tokens import owner_texts
from tools.catalog.mcp.upstreams import endpoint_of, owner_of
from tools.mcpclient.errors import UpstreamRefused
from tools.messaging import message_channels, outbox
from tools.models import (
    Agent,
    Confirmation,
    McpAuthorization,
    McpCredential,
    Message,
    Token,
    UsedName,
    User,
)

migration = import_module("tools.migrations.0036_ids_of_people")


@pytest.fixture
def server(organization):
    return mcp_servers.create_server(
        organization=organization, by=factories.actor(organization),
        server={"name": "far", "url": "https://mcp.example/mcp", "credential_scope": "user"},
    )  # fmt: skip


@pytest.fixture
def alice(organization):
    return factories.person(organization)


def keep(server, owner):
    return mcp_servers.set_credential(
        row=server, owner=owner, values={"headers": {"X-Key": "of-alice"}},
        by=factories.actor(server.organization),
    )  # fmt: skip


def headers_for(server, user):
    catalog = mcp_import.of_row(server)
    return endpoint_of(catalog, owner_of(catalog, "person", user.pk)).secrets


def rename(user, name):
    user.username = name
    user.save()


def test_a_renamed_person_keeps_their_credentials(server, alice):
    keep(server, f"user:{alice.username}")
    assert "of-alice" in headers_for(server, alice)
    rename(alice, f"{alice.username}-wed")
    assert "of-alice" in headers_for(server, alice)
    (key,) = [one.owner for one in server.credentials.all()]
    assert owner_texts([key]) == {key: f"user:{alice.username}"}


def test_a_freed_name_is_nobodys(organization, server, alice):
    keep(server, f"user:{alice.username}")
    bob, freed = factories.person(organization), alice.username
    rename(alice, f"{freed}-wed")
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.filter(pk=bob.pk).update(username=freed)
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create_user(freed, organization=organization)
    bob.refresh_from_db()
    with pytest.raises(UpstreamRefused, match=f"no credentials of user:{bob.username}"):
        headers_for(server, bob)
    assert mcp_servers.find_credential(server, f"user:{freed}") is None


def test_a_form_says_that_a_name_was_anothers(organization, alice):
    freed = alice.username
    rename(alice, f"{freed}-wed")
    for name in (freed, freed.upper()):
        with pytest.raises(ValidationError, match="is not given again"):
            User(username=name, password="!", organization=organization).full_clean()


def test_a_person_takes_their_own_name_back(alice):
    own = alice.username
    rename(alice, f"{own}-wed")
    alice.username = own
    alice.full_clean()
    alice.save()
    assert User.objects.get(pk=alice.pk).username == own


def test_single_sign_on_gives_no_freed_name(organization, server, alice, settings):
    settings.OIDC_ORGANIZATION, settings.OIDC_ROLES = organization.slug, {"staff": ["viewer"]}
    keep(server, f"user:{alice.username}")
    freed = alice.username
    rename(alice, f"{freed}-wed")
    wished = ProviderIdentity(
        "https://id.example", "7", username=freed, groups=frozenset(["staff"])
    )
    stranger = single_sign_on.provision_user(wished)
    assert stranger.username.startswith(f"{freed}-") and stranger.pk != alice.pk
    with pytest.raises(UpstreamRefused):
        headers_for(server, stranger)


def test_who_issued_a_token_decides_nothing_of_it_by_another_name(organization, agent, alice):
    factories.tool(organization, requires_confirmation=True)
    factories.permit(alice, "decide_confirmation", "view_confirmation")
    User.objects.filter(pk=alice.pk).update(is_superuser=True)  # may issue, not decide
    alice.refresh_from_db()
    token, _ = account_actions.create_token(
        user=agent.service_account, by=factories.actor(organization), giver=caller_of_user(alice)
    )
    User.objects.filter(pk=alice.pk).update(is_superuser=False)
    confirmation: Confirmation = call_awaiting_approval(agent)
    confirmation.execution.token_id = token.pk
    confirmation.execution.save(update_fields=["token_id"])
    for name in (alice.username, f"{alice.username}-wed"):
        User.objects.filter(pk=alice.pk).update(username=name)
        caller = caller_of_user(User.objects.get(pk=alice.pk))
        assert decisions.issued_its_token(caller, confirmation.execution)
        assert decisions.obstacle(caller, confirmation).code == "own_token"


def test_an_owner_is_of_the_organization(organization, server):
    there = factories.organization(f"there-{uuid4().hex[:8]}")
    stranger = factories.person(there)
    factories.agent(there, "magpie")
    for owner in (f"user:{stranger.username}", "user:nobody", "user:a\x00b"):
        assert mcp_servers.find_credential(server, owner) is None
    assert mcp_servers.find_credential(server, "agent:magpie") is None


def inbox(organization, *names):
    by = factories.actor(organization)
    way = {"name": "desk", "kind": "inbox", "recipients": [*names]}
    message_channels.create_channel(organization=organization, channel=way, by=by)
    draft = outbox.MessageDraft(
        channel="desk", recipients=[*names], subject="s", body="b", sender="bot"
    )
    return outbox.store_message(organization.pk, draft)


def test_a_message_reaches_whom_it_was_written_to(organization, alice):
    message = inbox(organization, alice.username)
    rename(alice, f"{alice.username}-wed")
    outbox.deliver_message(message, {}, 1)
    assert [one.user_id for one in message.items.all()] == [alice.pk]


def test_what_home_granted_stays_at_home(organization):
    there = factories.organization(f"there-{uuid4().hex[:8]}")
    person = factories.person(
        organization, granted_groups=["desk", "*"], granted_permissions=["tool.x"]
    )
    away = caller_of_user(person, organization=there)
    assert (away.granted_groups, away.granted_permissions) == (frozenset(), frozenset())
    assert caller_of_user(person).granted_permissions == {"tool.x"}
    chief = caller_of_user(factories.superuser(organization), organization=there)
    assert chief.granted_groups == chief.granted_permissions == {"*"}


def test_rows_of_before_are_carried_over_to_ids(organization, server, alice, agent):
    by_name = f"user:{alice.username}"
    rows = {
        text: McpCredential.objects.create(server=server, owner=text)
        for text in (by_name, f"agent:{agent.slug}", "user:who-left", "agent:who-left", "odd")
    }
    everybody = McpAuthorization.objects.create(server=server, owner="", url="u", sealed=b"x")
    theirs = McpAuthorization.objects.create(server=server, owner=by_name, url="u", sealed=b"x")
    factories.token(agent.service_account)
    factories.token(alice)
    issued, lost = Token.objects.filter(user__in=[agent.service_account, alice]).order_by("pk")
    Token.objects.filter(pk=issued.pk).update(created_by=f"person:{alice.username}")
    Token.objects.filter(pk=lost.pk).update(created_by="person:who-left")
    UsedName.objects.filter(user=alice).delete()
    message = inbox(organization, alice.username)
    Message.objects.filter(pk=message.pk).update(addressees=[])

    for _ in range(2):  # the migration is idempotent
        migration.carry_over(apps, None)

    now = {text: McpCredential.objects.get(pk=row.pk).owner for text, row in rows.items()}
    assert now == {
        by_name: f"user:{alice.pk}",
        f"agent:{agent.slug}": f"agent:{Agent.objects.get(slug=agent.slug).pk}",
        "user:who-left": "none:user:who-left",
        "agent:who-left": "none:agent:who-left",
        "odd": "none:odd",
    }
    for row, owner in ((everybody, ""), (theirs, f"user:{alice.pk}")):
        row.refresh_from_db()
        assert row.owner == owner
    for token, issuer in ((issued, alice.pk), (lost, None)):
        token.refresh_from_db()
        assert token.issuer_id == issuer
    assert UsedName.objects.get(name=alice.username).user_id == alice.pk
    assert Message.objects.get(pk=message.pk).addressees == [alice.pk]


def test_a_row_without_an_owner_is_used_by_no_one_and_can_be_removed(organization, server):
    McpCredential.objects.create(server=server, owner="none:user:who-left")
    catalog = mcp_import.of_row(server)
    for identifier in (None, "", "user:who-left"):
        with pytest.raises(UpstreamRefused):
            endpoint_of(catalog, owner_of(catalog, "person", identifier))
    by = factories.actor(organization)
    mcp_servers.delete_credential(row=server, owner="none:user:who-left", by=by)
    assert not server.credentials.exists()
