"""Keeps the old import path of the login backend for sessions that began before release 0.2."""

from django.contrib.auth.backends import BaseBackend

from tools.accounts.login import login
from tools.models import User


class PeopleBackend(BaseBackend):
    """Continues such a session. It starts no login and gives no permission."""

    def get_user(self, user_id: int) -> User | None:
        return login.PeopleBackend().get_user(user_id)
