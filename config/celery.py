"""Celery: hints that an execution waits, and the clock of the housekeeping tasks."""

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("toolcrib")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["audit", "tools.execution"])


@setup_logging.connect
def keep_our_logging(**_: object) -> None:
    """Connected and empty: Celery then leaves the logging of config/logs.py alone."""
