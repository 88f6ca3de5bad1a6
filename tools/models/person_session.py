from typing import Any

from django.contrib.sessions.models import Session as BrowserSession
from django.db import models
from django.utils import timezone

from tools.models.ids import new_id
from tools.models.user import User


class PersonSessionQuerySet(models.QuerySet["PersonSession"]):
    def lasting(self) -> "PersonSessionQuerySet":
        return self.filter(session__expire_date__gt=timezone.now())


class PersonSession(models.Model):
    """The user and origin of a browser session, which Django's own row does not have; deleted with
    that row. Its identifier grants nothing and may be shown on pages; the session's key may not."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.OneToOneField(BrowserSession, on_delete=models.CASCADE, related_name="person")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="browser_sessions")
    began_at = models.DateTimeField(default=timezone.now)
    source_ip = models.CharField(max_length=45, blank=True)
    user_agent = models.CharField(max_length=200, blank=True)

    objects: Any = PersonSessionQuerySet.as_manager()

    class Meta:
        ordering = ["-began_at"]

    def __str__(self) -> str:
        return f"{self.user_id} since {self.began_at:%Y-%m-%d %H:%M}"
