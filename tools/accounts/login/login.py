"""Decides which accounts may log in with a password: people, never service accounts."""

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser

from tools.models import User


class PeopleBackend(ModelBackend):
    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        is_service = getattr(user, "is_service_account", False)
        return not is_service and super().user_can_authenticate(user)
