from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session as BrowserSession
from django.utils import timezone

from tests import factories
from tests.tools.live.stream_client import logged_in
from tools.live.readers import load_readers
from tools.models import Organization, User


@pytest.fixture
def person(organization: Organization) -> User:
    return factories.person(organization)


def test_a_person_is_known_by_the_session(person: User) -> None:
    key = logged_in(person)
    found = load_readers([key, "unknown"])
    assert set(found) == {key}
    assert found[key].user_id == person.pk and not found[key].everyone and not found[key].decides


@pytest.mark.parametrize(
    ("permission", "everyone", "decides"),
    [
        ("view_execution", True, False),
        ("view_confirmation", False, True),
        ("decide_confirmation", False, True),
    ],
)
def test_rights_are_those_that_are_granted(
    person: User, permission: str, everyone: bool, decides: bool
) -> None:
    factories.permit(person, permission)
    found = next(iter(load_readers([logged_in(person)]).values()))
    assert (found.everyone, found.decides) == (everyone, decides)


def test_a_session_that_is_over_is_nobodys(person: User) -> None:
    key = logged_in(person)
    BrowserSession.objects.filter(pk=key).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert load_readers([key]) == {}


@pytest.mark.parametrize("field", ["is_active", "is_service_account"])
def test_whoever_may_not_log_in_reads_nothing(person: User, field: str) -> None:
    key = logged_in(person)
    User.objects.filter(pk=person.pk).update(**{field: field != "is_active"})
    assert load_readers([key]) == {}


@pytest.mark.parametrize("held", [{}, {"_auth_user_id": "x"}, {"_auth_user_id": "\x00"}])
def test_a_session_of_nobody_reads_nothing(db: None, held: dict[str, Any]) -> None:
    store = SessionStore()
    store.update(held)
    store.save()
    assert store.session_key and load_readers([store.session_key]) == {}


def test_many_are_asked_for_at_once(
    organization: Organization, django_assert_max_num_queries: Any
) -> None:
    keys = [logged_in(factories.person(organization)) for _ in range(5)]
    with django_assert_max_num_queries(6):
        assert len(load_readers(keys)) == 5
