"""The project, not the product: settings, processes, probes."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
