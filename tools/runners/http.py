"""Runs HTTP tools. The request is built and its response read here; between them is the egress
broker, the only process that reaches other machines for tools, which allows only the request's
host, port and method. No sandbox is needed: nothing of the tool is code."""

import json
from dataclasses import replace
from typing import Any

from sandbox.egress.rules.egress_policy import (
    MIB,
    Denied,
    EgressAttempt,
    EgressLimits,
    EgressPolicy,
    HostRule,
)
from sandbox.egress.rules.grammar import BrokenGrammar, Url
from sandbox.egress.rules.host_rules import Rules, read_rule
from sandbox.errors import ErrorCode
from sandbox.inside import sandbox_http
from sandbox.spec import Network, RunOutcome, SandboxResult
from tools.catalog.mcp.mcp_values import Mask
from tools.catalog.sandbox.hosts import Item, credentials_in, rules_of
from tools.definitions.implementations.http_requests import ToolHttpRequest, build_request
from tools.definitions.implementations.http_tools import BODILESS, UnusableArgument
from tools.definitions.vocabulary import Delivery
from tools.runners.http_responses import read_response
from tools.runners.sandbox_runs import (
    CredentialUnavailable,
    allowed_hosts,
    credential_headers,
    missing_credential_result,
    request_network,
)
from tools.runners.tool_runs import ToolRun, sandbox_client

MOST_REDIRECTS = 3
MOST_ANSWER = 32 * MIB
EXCERPT = 500
_HEADER_BYTES = MIB  # for headers of the response, and of redirects
_RETRYABLE_STATUSES = frozenset({429, 503})


class CredentialNotBound(Exception):
    """No entry for the host names the credential."""


def run(job: ToolRun) -> SandboxResult:
    try:
        request = build_request(job.definition.raw["implementation"], job.arguments)
        url = Url.parse(request.url)
    except (UnusableArgument, BrokenGrammar) as error:
        return _failure("REQUEST_INVALID", str(error))
    if request_network(job) == Network.NONE:
        return _failure("NETWORK_OFF", "Its sandbox profile gives the tool no network.")
    try:
        rule = _egress_rule(job, request.method, url)
    except Denied as denied:
        refused = EgressAttempt("helper", request.method, url.host.text, url.port, code=denied.code)
        return replace(_failure(denied.code, f"{_sentence(denied)}"), network=(refused,))
    except CredentialNotBound as error:
        return _failure("CREDENTIAL_NOT_BOUND", str(error))
    except CredentialUnavailable as error:
        return missing_credential_result(error)
    outcome = _send(job, request, rule)
    return _tool_result(job, outcome, Mask(value for _, value in rule.headers))


def _egress_rule(job: ToolRun, method: str, url: Url) -> HostRule:
    """The entry of the lists of hosts for this host, restricted to this port and method.

    Raises `Denied`, `CredentialNotBound`, `CredentialUnavailable`.
    """
    covering = _most_exact_hosts(allowed_hosts(job), url)
    credential = job.definition.credential
    bound = [one for one in covering if credential is None or credential in credentials_in([one])]
    if covering and not bound:
        raise CredentialNotBound(
            f"The tool needs the credential {credential}; no entry for {url.host} in the list of "
            "allowed hosts names it."
        )
    headers = credential_headers(credentials_in(bound), job.snapshot)
    found = Rules(EgressPolicy(rules_of(bound, headers))).admit(method, url)
    return replace(found, host=url.host.text, ports=(url.port,), methods=(method,))


def _most_exact_hosts(items: tuple[Item, ...], url: Url) -> list[Item]:
    """An entry for one host precedes a wider one, as in the broker."""
    read = [(item, read_rule(HostRule(_host(item)))) for item in items]
    covering = [(item, rule.exactness) for item, rule in read if rule.covers(url.host)]
    most = max((exactness for _, exactness in covering), default=0)
    return [item for item, exactness in covering if exactness == most]


def _host(item: Item) -> str:
    return item if isinstance(item, str) else str(item["host"])


def _send(job: ToolRun, request: ToolHttpRequest, rule: HostRule) -> SandboxResult:
    redirects = MOST_REDIRECTS if request.method in BODILESS else 0
    most = min(job.definition.max_output_bytes, MOST_ANSWER)
    limits = EgressLimits(
        requests=1 + redirects,
        connections=1,
        response_bytes=most + _HEADER_BYTES,
        request_s=job.timeout_s,
    )

    def exchange(door: sandbox_http.Door) -> dict[str, Any]:
        answer = sandbox_http.request(
            request.method,
            request.url,
            headers=request.headers,
            body=request.body,
            timeout_s=job.timeout_s,
            max_bytes=most,
            redirects=redirects,
            door=door,
        )
        return read_response(answer, job.definition.raw["implementation"].get("select"))

    outcome = sandbox_client().exchange(
        EgressPolicy((rule,), limits),
        job.organization,
        exchange,
        wall_s=job.timeout_s,
        cancelled=job.stop,
        until=job.until,
    )
    return _bounded(job, outcome)


def _bounded(job: ToolRun, outcome: SandboxResult) -> SandboxResult:
    most = job.definition.max_output_bytes
    if len(json.dumps(outcome.output, ensure_ascii=False).encode()) <= most:
        return outcome
    message = f"the tool wrote more than {most} bytes"
    code = ErrorCode.OUTPUT_LIMIT
    return replace(
        outcome, outcome=RunOutcome.FAILED, output=None, error_code=code, error_message=message
    )


def _tool_result(job: ToolRun, outcome: SandboxResult, mask: Mask) -> SandboxResult:
    """The response as the tool's output, or the error; credentials are masked in both."""
    if outcome.outcome == RunOutcome.SUCCESS:
        return _response_result(outcome, mask)
    if outcome.outcome != RunOutcome.FAILED:
        return outcome
    pure = job.definition.raw["delivery"] == Delivery.PURE
    if not pure and _is_unanswered(outcome):
        return replace(outcome, error_code=ErrorCode.LOST)
    response = mask.text(outcome.error_message or "")
    return replace(outcome, output=None, error_message=_earlier_answer(outcome.network) + response)


def _is_unanswered(outcome: SandboxResult) -> bool:
    """Something was sent, or may have been, and no answer came."""
    if outcome.error_code == ErrorCode.EGRESS_UNAVAILABLE:  # the broker stopped meanwhile
        return True
    last = outcome.network[-1] if outcome.network else None
    return last is not None and last.bytes_sent > 0 and not last.status


def _earlier_answer(network: tuple[EgressAttempt, ...]) -> str:
    """What came before the failure, so that the error is not read as no answer at all."""
    answered = [one.status for one in network if one.status]
    if not answered:
        return ""
    if len(answered) < len(network):
        return f"The server redirected with status {answered[-1]}, and what followed failed: "
    return f"The server answered with status {answered[-1]}, but: "


def _response_result(outcome: SandboxResult, mask: Mask) -> SandboxResult:
    response: dict[str, Any] = outcome.output
    if "excerpt" not in response:
        return replace(outcome, output=mask.value(response["output"]))
    return replace(
        outcome,
        outcome=RunOutcome.FAILED,
        output=None,
        error_code="UPSTREAM_STATUS",
        error_message=_refusal_message(response, mask),
    )


def _refusal_message(response: dict[str, Any], mask: Mask) -> str:
    status, words = response["status"], f"The server answered with status {response['status']}."
    if 300 <= status < 400:
        words += " Redirects of this method are not followed."
    if status in _RETRYABLE_STATUSES and response["retry_after"]:
        words += f" It asks to wait (Retry-After): {mask.text(response['retry_after'])}."
    excerpt = _masked_excerpt(response["excerpt"], mask)
    return f"{words} {excerpt}".strip()


def _masked_excerpt(text: str, mask: Mask) -> str:
    """Masked before it is cut: half a credential is one too much. The sandbox has cut it already,
    so what may be half of one at its end goes too."""
    masked = mask.text(text[: len(text) - mask.longest] if len(text) > 10 * EXCERPT else text)
    return masked if len(masked) <= EXCERPT else f"{masked[:EXCERPT]}…"


def _sentence(denied: Denied) -> str:
    text = str(denied)
    return f"{text[:1].upper()}{text[1:]}."


def _failure(code: str, message: str) -> SandboxResult:
    return SandboxResult(RunOutcome.FAILED, error_code=code, error_message=message)
