"""Log format: one JSON line per event, with the request and the execution it belongs to."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pythonjsonlogger.json import JsonFormatter

request_id: ContextVar[str] = ContextVar("request_id", default="")
client_request_id: ContextVar[str] = ContextVar("client_request_id", default="")
execution_id: ContextVar[str] = ContextVar("execution_id", default="")


@contextmanager
def about_execution(identifier: str) -> Iterator[None]:
    """Every line logged inside carries the execution's id, and its request's once that is known."""
    execution, request = execution_id.set(identifier), request_id.set("")
    try:
        yield
    finally:
        request_id.reset(request)
        execution_id.reset(execution)


class Correlation(logging.Filter):
    """Adds the current request and execution to a record; lets every record pass.

    Django attaches the request itself to a record; written out it would show the whole URL, which
    may contain a secret, so only its id stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        request = record.__dict__.pop("request", None)
        record.request_id = request_id.get() or getattr(request, "name", "")
        record.client_request_id = client_request_id.get()
        record.execution_id = execution_id.get()
        return True


class NotReadiness(logging.Filter):
    """Drops failures of /readyz: its client sees them, and asks many times at a start."""

    def filter(self, record: logging.LogRecord) -> bool:
        return getattr(getattr(record, "request", None), "path", "") != "/readyz"


def logging_config(level: str) -> dict[str, Any]:
    fields = (
        "%(asctime)s %(levelname)s %(name)s %(message)s %(request_id)s %(client_request_id)s "
        "%(execution_id)s"
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {
            "correlation": {"()": Correlation},
            "not_readiness": {"()": NotReadiness},
        },
        "formatters": {
            "json": {
                "()": JsonFormatter,
                "format": fields,
                "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
            }
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "json",
                "filters": ["correlation"],
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
        # One line per message received or done: audit and metrics report this better.
        "loggers": {
            # Refusals are audited and counted; only our own faults are logged here.
            "django.request": {"level": "ERROR", "filters": ["not_readiness"]},
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
        },
    }
