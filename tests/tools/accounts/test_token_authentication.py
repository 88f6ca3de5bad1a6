"""Use of a revoked or expired token is recorded, because it may have been stolen."""

from datetime import timedelta

import pytest
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tools.accounts import account_actions
from tools.accounts.token_authentication import caller_of_token
from tools.errors import Unauthenticated
from tools.models import Token

pytestmark = pytest.mark.django_db


def tried(text):
    with pytest.raises(Unauthenticated):
        caller_of_token(text, source_ip="192.0.2.7")


def refusal_records(organization):
    return AuditRecord.objects.filter(organization=organization.slug, code="TOKEN.REFUSED")


def test_a_revoked_tokens_use_is_on_record_once_a_minute(agent, organization):
    text = factories.token(agent.service_account)
    token = Token.objects.get(user=agent.service_account)
    account_actions.revoke_token(token=token, by=factories.actor(organization))
    for _ in range(3):
        tried(text)
    (record,) = refusal_records(organization)
    assert (record.actor, record.token_id, record.reason) == (
        agent.slug, str(token.pk), "token_revoked",
    )  # fmt: skip
    assert record.source_ip == "192.0.2.7" and text not in str(record.__dict__)


def test_so_is_that_of_one_that_has_run_out(agent, organization):
    text = factories.token(agent.service_account)
    past = timezone.now() - timedelta(days=1)
    Token.objects.update(created_at=past - timedelta(days=1), expires_at=past)
    tried(text)
    assert refusal_records(organization).get().reason == "token_expired"


def test_and_that_of_a_suspended_agents(agent, organization):
    text = factories.token(agent.service_account)
    account_actions.change_agent(agent=agent, by=factories.actor(organization), active=False)
    tried(text)
    assert refusal_records(organization).get().reason == "agent_suspended"


def test_garbage_and_guessed_secrets_leave_nothing(agent, organization):
    good, other = (factories.token(agent.service_account) for _ in range(2))
    Token.objects.update(revoked_at=timezone.now())
    guessed = f"{good[:13]}{other[13:]}"  # the checksum belongs to another token
    for text in ("", "tcr_", "garbage", guessed):
        tried(text)
    assert not refusal_records(organization).exists()
