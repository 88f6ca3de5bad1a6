"""Runs tools of a queue service: sends a request to its queue, and awaits the answer."""

import json
import threading
from functools import lru_cache

from django.conf import settings

from config.external_servers import find_broker
from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome
from toolcrib_service.queue_protocol import Queue
from tools.runners.tool_runs import ToolRun, UpstreamResult, failed_result
from tools.toolservices.answer_stream import (
    NotAnswered,
    NotBegun,
    TimedOut,
    ToolServiceCallCancelled,
    ToolServiceCallFailed,
    ToolServiceCallLost,
)
from tools.toolservices.kombu_client import KombuClient
from tools.toolservices.redis_client import UNAVAILABLE, ToolServiceClient, ToolServiceRequest

_lock = threading.Lock()
_kombu_clients: dict[str, KombuClient] = {}


@lru_cache(maxsize=1)
def default_client() -> ToolServiceClient:
    return ToolServiceClient(settings.REDIS_URL)


def service_client(organization: str, service: str) -> ToolServiceClient | KombuClient:
    """The client of the broker that the operator configured for the service, else of our own."""
    broker = find_broker(settings.TOOL_SERVICE_BROKERS, organization, service)
    if broker is None:
        return default_client()
    with _lock:
        key = json.dumps([broker.url, broker.options], sort_keys=True)
        if key not in _kombu_clients:
            _kombu_clients[key] = KombuClient(broker)
        return _kombu_clients[key]


def run(job: ToolRun) -> UpstreamResult:
    implementation = job.definition.raw["implementation"]
    service = job.snapshot.services.get(implementation["service"])
    if service is None or not service.request_queue:
        return failed_result(UNAVAILABLE, "The tool's service is not registered, or has no queue.")
    asked = ToolServiceRequest(
        queue=Queue(job.organization, service.request_queue),
        user=job.caller,
        config=implementation["config"],
        arguments=job.arguments,
        timeout_s=job.timeout_s,
        most_bytes=job.definition.max_output_bytes,
    )
    try:
        own = service_client(job.organization, service.name)
        text = own.call(asked, stop=job.stop, until=job.until, tell=job.tell)
    except NotAnswered as ending:
        return _failure_result(ending)
    return UpstreamResult(RunOutcome.SUCCESS, output=text)


def _failure_result(ending: NotAnswered) -> UpstreamResult:
    match ending:
        case NotBegun(code=code) | ToolServiceCallFailed(code=code):
            return failed_result(code, str(ending))
        case ToolServiceCallLost():
            return failed_result(ErrorCode.LOST, str(ending))
        case TimedOut():
            outcome, code = RunOutcome.TIMEOUT, ErrorCode.TIMEOUT
        case ToolServiceCallCancelled(begun=begun):
            outcome, code = RunOutcome.CANCELLED, ErrorCode.CANCELLED
            if not begun:
                code = ErrorCode.NOT_BEGUN
        case _:
            raise AssertionError(f"an ending of no known kind: {ending!r}")
    return UpstreamResult(outcome, error_code=code, error_message=str(ending))
