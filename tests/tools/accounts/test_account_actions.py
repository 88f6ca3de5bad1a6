"""Rules of actions, whichever entry point calls them."""

from typing import Any

import pytest

from tests import factories
from tools.accounts.account_actions import create_token
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.superusers import check_superuser_left
from tools.errors import Conflict, Malformed
from tools.models import Token, User


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"days": 0}, "days"), ({"days": 366}, "days"), ({"days": 36_500}, "days"),
     ({"label": "x" * 101}, "label")],
)  # fmt: skip
def test_a_token_beyond_the_bounds_is_refused(
    organization: Any, wrong: dict[str, Any], field: str
) -> None:
    person = factories.person(organization)
    by = caller_of_user(person)
    with pytest.raises(Malformed) as refusal:
        create_token(user=person, by=actor_of(by), giver=by, **wrong)
    assert [flaw["field"] for flaw in refusal.value.field_errors()] == [field]
    assert not Token.objects.filter(user=person).exists()
    create_token(user=person, by=actor_of(by), giver=by, days=365, label="x" * 100)


@pytest.mark.parametrize("change", [(False, True), (True, False), (False, False)])
def test_a_superuser_is_left(organization: Any, change: tuple[bool, bool]) -> None:
    User.objects.filter(is_superuser=True).update(is_active=False)
    chief, active_superuser = factories.superuser(organization), change
    active, superuser = active_superuser
    with pytest.raises(Conflict):
        check_superuser_left(chief, active=active, superuser=superuser)
    check_superuser_left(chief, active=True, superuser=True)
    factories.superuser(organization)
    check_superuser_left(chief, active=active, superuser=superuser)
