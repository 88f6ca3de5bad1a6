"""`Idempotency-Key`: a POST that makes or does something, sent twice, is done once.

Where the action writes to our database alone, the key, the action and the answer are one
transaction: a second request waits for it. What asks others, signals processes as it goes, or
erases batch by batch, first commits that it has begun.
"""

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, transaction
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from config.http.errors import encode_json
from tools.accounts import idempotency
from tools.accounts.grants.grants import grants
from tools.accounts.idempotency import IdempotentResponse
from tools.accounts.user_permissions import noting_permissions
from tools.catalog.registry import registry
from tools.definitions.callers import Caller
from tools.definitions.values import strict_json
from tools.errors import Malformed, ToolcribError
from tools.models.idempotency_key import Attempt
from tools.web.query_parameters import QueryView

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
WITHHELD = "Idempotent-Replay-Withheld"
# Of one answer that is kept: more than any but that of a large definition or a long import.
MOST_BYTES = 128 * 1024
_KEY = re.compile(r"[!-~]{1,255}")
_REFUSALS = (ToolcribError, APIException, Http404, PermissionDenied)
_FINAL_REFUSALS = frozenset({409, 422})
_REPEATED_HEADERS = ("Location", "ETag")


class Keying(Enum):
    """How a POST uses its key."""

    ONE_TRANSACTION = "the key, the action and the answer commit together"
    IN_PROGRESS = "the key is committed before the action"
    EXECUTION = "the key is the execution's"
    AFTER_PROOF = "the view itself asks, once it knows its caller"
    IGNORED = "it only reads"


_STORED_KEYINGS = frozenset({Keying.ONE_TRANSACTION, Keying.IN_PROGRESS})


def idempotency_key(request: Request) -> str | None:
    key = request.headers.get(HEADER)
    if key is not None and not _KEY.fullmatch(key):
        raise Malformed(f"{HEADER} must be 1 to 255 visible ASCII characters.")
    return key


class KeyedView(QueryView):
    """A view whose POST takes the key, unless it says otherwise."""

    keying = Keying.ONE_TRANSACTION
    most_values = strict_json.MAX_VALUES  # of a body
    secret: tuple[str, ...] = ()  # members of its answer that are shown once
    replayed = False
    uncommitted = False  # while what it changed may yet be undone

    @property
    def takes_key(self) -> bool:
        return self.keying != Keying.IGNORED

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        post = getattr(self, "post", None)
        if request.method != "POST" or post is None or not self.takes_key:
            return
        if (key := idempotency_key(request)) is not None and self.keying in _STORED_KEYINGS:
            vars(self)["post"] = partial(self._keyed, key, post)

    def check_replay(self, **place: Any) -> None:
        """Raises what would refuse the caller now, in addition to scopes, permissions and
        groups."""

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        if self.replayed:
            response[REPLAYED] = "true"
        return super().finalize_response(request, response, *args, **kwargs)

    def _keyed(
        self, key: str, post: Callable[..., Any], request: Request, **place: Any
    ) -> HttpResponseBase:
        caller = request.auth
        assert isinstance(caller, Caller)
        return respond_once(
            self,
            _build_request(request, caller, key, most_values=self.most_values),
            partial(post, request, **place),
            check_replay=partial(self.check_replay, **place),
        )


def respond_once(
    view: KeyedView,
    request: idempotency.IdempotentRequest,
    act: Callable[[], HttpResponseBase],
    *,
    check_replay: Callable[[], None] = lambda: None,
) -> HttpResponseBase:
    """The response of `act`, or the stored one."""
    if view.keying == Keying.IN_PROGRESS:
        return _respond_in_progress(view, request, act, check_replay)
    try:
        with transaction.atomic():
            claimed = idempotency.claim(request, check_replay)
            if isinstance(claimed, IdempotentResponse):
                return _replay_response(view, claimed)
            view.uncommitted = True
            return _perform_action(view, claimed, act)
    except Exception:
        # Caches filled during a change that is rolled back are invalid.
        if view.uncommitted:
            registry.forget()
            grants.forget()
        raise
    finally:
        view.uncommitted = False


def idempotent_request(
    request: Request, caller: Caller, *, left_out: Iterable[str] = ()
) -> idempotency.IdempotentRequest | None:
    """For a view that knows its caller late. `left_out` are members of the body that differ each
    time, or are proven already."""
    key = idempotency_key(request)
    return None if key is None else _build_request(request, caller, key, left_out)


def _build_request(
    request: Request,
    caller: Caller,
    key: str,
    left_out: Iterable[str] = (),
    most_values: int = strict_json.MAX_VALUES,
) -> idempotency.IdempotentRequest:
    body = _canonical_body(request.body, left_out, most_values)
    sent = idempotency.fingerprint(request.META.get("QUERY_STRING", ""), body)
    return idempotency.IdempotentRequest(caller, key, (str(request.method), request.path), sent)


def _canonical_body(body: bytes, left_out: Iterable[str], most_values: int) -> str:
    """One text for all spellings of the same JSON; anything else, as it is."""
    try:
        value = strict_json.parse(body, most_values=most_values)
    except strict_json.BadJson:
        return body.decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        value = {name: one for name, one in value.items() if name not in left_out}
    return json.dumps(value, sort_keys=True)


def _respond_in_progress(
    view: KeyedView,
    request: idempotency.IdempotentRequest,
    act: Callable[[], HttpResponseBase],
    check_replay: Callable[[], None],
) -> HttpResponseBase:
    with transaction.atomic():
        claimed = idempotency.claim(request, check_replay)
    if isinstance(claimed, IdempotentResponse):
        return _replay_response(view, claimed)
    try:
        return _perform_action(view, claimed, act)
    except BaseException:
        with suppress(DatabaseError):  # then another request takes over when its time has come
            idempotency.release(claimed)
        raise


def _perform_action(
    view: KeyedView, attempt: Attempt, act: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    """Stores the response of an action that was done, or refused by decision; any other refusal
    releases the key, and commits its audit records."""
    with noting_permissions() as relied_on:
        try:
            response = act()
        except _REFUSALS as refusal:
            if transaction.get_connection().in_atomic_block and transaction.get_rollback():
                raise
            response = view.handle_exception(refusal)
    if not _is_final(response):
        idempotency.release(attempt)
        return response
    answer = _response_content(response)
    headers = {name: response[name] for name in _REPEATED_HEADERS if name in response}
    if len(encode_json(answer)) > MOST_BYTES:
        answer = _withheld_answer(answer, headers, view.secret)
        headers[WITHHELD] = "*"
    idempotency.keep(
        attempt,
        status=response.status_code,
        answer=answer,
        headers=headers,
        secret=view.secret,
        relied_on=relied_on,
    )
    return response


def _is_final(response: HttpResponseBase) -> bool:
    if response.streaming:
        return False
    if response.status_code in _FINAL_REFUSALS:
        return "Retry-After" not in response
    return 200 <= response.status_code < 300


def _response_content(response: HttpResponseBase) -> Any:
    if isinstance(response, Response):
        return response.data
    assert isinstance(response, HttpResponse)
    return json.loads(response.content) if response.content else None


def _withheld_answer(
    answer: Any, headers: dict[str, str], secret: tuple[str, ...]
) -> dict[str, Any]:
    """In place of a large answer: where it can be read, and what is shown nowhere else."""
    shown_once = {name: answer[name] for name in secret if answer.get(name)} if secret else {}
    return {"withheld": "large", "location": headers.get("Location"), **shown_once}


def _replay_response(view: KeyedView, kept: IdempotentResponse) -> HttpResponse:
    response = HttpResponse(
        kept.answer, status=kept.status, content_type="application/json", headers=dict(kept.headers)
    )
    response[REPLAYED] = "true"
    if kept.withheld:
        response.headers.setdefault(WITHHELD, ", ".join(view.secret))
    return response
