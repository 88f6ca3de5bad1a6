"""The Django project: settings, processes, probes. The product is in `tools`."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
