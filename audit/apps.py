from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AuditConfig(AppConfig):
    name = "audit"
    verbose_name = "Audit"

    def ready(self) -> None:
        post_migrate.connect(_make_partitions, sender=self)


def _make_partitions(**_: Any) -> None:
    from audit import partitions  # noqa: PLC0415 - models and metrics are not ready before

    partitions.make_all_partitions()
