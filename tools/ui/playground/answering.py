"""The response to a call, as a REST client gets it."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tools.errors import ToolcribError
from tools.execution import actions, confirmations
from tools.models import Execution
from tools.shapes import execution_shape, refusal_shape
from tools.ui.display import cut, pretty


@dataclass(frozen=True)
class PlaygroundResponse:
    """`body` is the body of the response, indented."""

    status: int
    body: str
    observation: str = ""

    @property
    def phrase(self) -> str:
        return HTTPStatus(self.status).phrase

    @property
    def good(self) -> bool:
        return self.status < HTTPStatus.BAD_REQUEST


def answer_of(execution: Execution) -> PlaygroundResponse:
    """The current response: 200 once the call is over, 202 before, else the refusal's status."""
    refusal = actions.refusal_of(execution)
    if refusal is not None:
        return answer_to(refusal, execution.request_id)
    held = confirmations.of_executions([execution]).get(execution.pk)
    status = HTTPStatus.OK if execution.over else HTTPStatus.ACCEPTED
    return PlaygroundResponse(
        status, _body(execution_shape(execution, held)), execution.observation
    )


def answer_to(refusal: ToolcribError, request_id: str = "") -> PlaygroundResponse:
    named = {"request_id": request_id} if request_id else {}
    return PlaygroundResponse(refusal.http_status, _body(refusal_shape(refusal) | named))


def _body(value: dict[str, Any]) -> str:
    return cut(pretty(value))
