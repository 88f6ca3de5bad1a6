"""`send_message`: runs in the worker, since no secret enters the sandbox."""

from uuid import UUID

from django.db import connection

from audit.actions import Actor, record
from audit.alerts.alert_channels import DeliveryFailed
from audit.events import Event
from audit.events import Outcome as Evidence
from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome
from tools.messaging import outbox
from tools.messaging.outbox import MessageDraft, MessageRefused
from tools.models import Message, MessageChannel
from tools.runners.tool_runs import ToolRun, UpstreamResult, failed_result

_TIMEOUT_S = 30.0
_TRIAL_S = 10.0


def run(job: ToolRun) -> UpstreamResult:
    given = job.arguments
    draft = MessageDraft(
        channel=given["channel"],
        recipients=given.get("to") or [],
        subject=given["subject"],
        body=given["body"],
        data=given.get("data") or {},
        sender=f"{job.caller_kind}:{job.caller}",
        execution_id=job.execution_id,
    )
    if job.stop.is_set():
        words = "The call was stopped before it began."
        return UpstreamResult(
            RunOutcome.CANCELLED, error_code=ErrorCode.NOT_BEGUN, error_message=words
        )
    try:
        message = outbox.store_message(UUID(str(job.snapshot.organization_id)), draft)
        connection.close()  # not held while waiting for a server
        outbox.deliver_message(message, draft.data, min(job.timeout_s, _TIMEOUT_S))
    except MessageRefused as refusal:
        return failed_result(refusal.code, str(refusal))
    except DeliveryFailed as problem:
        return failed_result(ErrorCode.LOST if problem.begun else "MESSAGE_NOT_SENT", str(problem))
    return UpstreamResult(RunOutcome.SUCCESS, output=_output(message))


def try_channel(*, channel: MessageChannel, recipients: list[str], by: Actor) -> Message:
    """Sends a test message, which is stored like every other. Raises `MessageRefused`."""
    draft = MessageDraft(
        channel=channel.name,
        recipients=recipients,
        subject="A test from Toolcrib",
        body=f"The channel {channel.name} works.",
        sender=f"{by.kind}:{by.name}",
    )
    message = outbox.store_message(channel.organization_id, draft)
    problem = ""
    try:
        outbox.deliver_message(message, {}, _TRIAL_S)
    except DeliveryFailed as reason:
        problem = str(reason)
    record(
        Event.MESSAGE_TEST,
        by=by,
        outcome=Evidence.FAILURE if problem else Evidence.SUCCESS,
        subject=channel.name,
        details={"message": str(message.pk), "state": message.state},
    )
    return message


def _output(message: Message) -> dict[str, object]:
    return {
        "message_id": str(message.pk),
        "channel": message.channel_name,
        "kind": message.kind,
        "recipients": message.recipients,
        "state": message.state,
        "answer": message.answer,
    }
