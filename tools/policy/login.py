"""Who may log in with a password: people, never service accounts."""

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.base_user import AbstractBaseUser


class PeopleBackend(ModelBackend):
    def user_can_authenticate(self, user: AbstractBaseUser | None) -> bool:
        is_service = getattr(user, "is_service_account", False)
        return not is_service and super().user_can_authenticate(user)
