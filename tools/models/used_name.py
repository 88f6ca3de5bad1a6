from django.db import models

from tools.models.user import User


class UsedName(models.Model):
    """A user name that is or was in use. A trigger of `tools_user` writes it and refuses it to any
    other account, so that no name ever refers to another person."""

    name = models.CharField(max_length=150, primary_key=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="used_names")

    def __str__(self) -> str:
        return self.name
