"""`/api/v1/tokens`: a person's own tokens, issued after a password check, for use without a
browser."""

from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth import authenticate
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts import account_actions
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.grants.narrowing import check_own_token, manages_some
from tools.accounts.login import lockout, second_factors
from tools.accounts.login.codes import factor_of
from tools.api.accounts.agents import issued, rotated
from tools.api.common.authentication import source_ip
from tools.api.common.base import CallerView
from tools.api.common.bodies import LoginBody, NewTokenAnswer, RotationBody, TokenPage
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.idempotency import Keying, answered_once, request_of
from tools.definitions.callers import Caller, Scope
from tools.errors import Forbidden, NotFound, Unauthenticated
from tools.models import Token, User
from tools.shapes import token_shape
from tools.web.pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method


class PersonalTokens(CallerView):
    """Creating one needs no token: a person gets their first one here."""

    proof = by_method(post=Proof.NOT_NEEDED)
    keying = Keying.AFTER_PROOF
    secret = ("token",)

    def get_authenticators(self) -> list[Any]:
        return super().get_authenticators() if self._reads() else []

    def get_permissions(self) -> list[Any]:
        return [*super().get_permissions()] if self._reads() else []

    def _reads(self) -> bool:
        asked: Any = self.request  # none while the API's document is written
        return asked is None or asked.method in {"GET", "HEAD"}

    @extend_schema(
        operation_id="list_own_tokens",
        parameters=paging_parameters(newest_first()),
        responses=TokenPage,
    )
    def get(self, request: Request) -> Response:
        """The caller's own tokens, the newest first, ended ones too; never a secret."""
        found = Token.objects.filter(user_id=self.caller.user_id)
        pages = CursorPages(newest_first())
        page: list[Token] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([token_shape(token) for token in page])

    @extend_schema(
        operation_id="create_personal_token",
        request=LoginBody,
        responses={201: NewTokenAnswer, 429: None},
        auth=[],
    )
    def post(self, request: Request) -> HttpResponseBase:
        """A personal token for a name and a password; shown once."""
        wanted = LoginBody(data=request.data)
        wanted.is_valid(raise_exception=True)
        given = wanted.validated_data
        ip = source_ip(request)
        with lockout.guarded(username=given["username"], source_ip=ip) as attempt:
            user = authenticate(None, username=given["username"], password=given["password"])
            if not isinstance(user, User):
                raise Unauthenticated("The name or the password is wrong.", code="login_failed")
            attempt.succeeded()
        _prove_second_factor(user, given.get("code", ""), ip)
        caller = caller_of_user(user, source_ip=ip)
        make = partial(_new_token, user, caller, given)
        keyed = request_of(request, caller, left_out=("password", "code"))
        return answered_once(self, keyed, make) if keyed else make()


def _new_token(user: User, caller: Caller, given: dict[str, Any]) -> Response:
    token, text = account_actions.create_token(
        user=user,
        by=actor_of(caller),
        giver=caller,
        scopes=given.get("scopes", [Scope.READ, Scope.EXECUTE]),
        label=given["label"],
        days=given.get("days"),
        groups=given.get("groups"),
        tools=given.get("tools"),
    )
    return issued(token, text, "/api/v1/tokens")


def _prove_second_factor(user: User, code: str, ip: str) -> None:
    """As at the login page, but without security keys.

    Raises `Unauthenticated`, `TooManyAttempts`, and `Forbidden` for a person who must set up a
    second factor first.
    """
    if not second_factors.has_factor(user):
        if second_factors.must_have(user):
            raise Forbidden(
                "Log in with a browser and set up a second factor first.",
                code="second_factor_needed",
            )
        return
    if not code:
        raise Unauthenticated(
            "Send the code of your authenticator app, or a recovery code, as code; or make the "
            "token on your profile.",
            code="code_needed",
        )
    by = actor_of(caller_of_user(user, source_ip=ip))
    what = lockout.SECOND_FACTOR
    with lockout.guarded(username=user.username, source_ip=ip, what=what) as attempt:
        if not factor_of(user=user, code=code, by=by):
            raise Unauthenticated("The code is wrong, or was used before.", code="login_failed")
        attempt.succeeded()


class OwnTokenView(ConditionalView):
    volatile = frozenset({"last_used_at"})
    scope = Scope.READ  # and a managing scope for other tokens

    def own(self, token_id: UUID) -> Token:
        token = Token.objects.filter(user_id=self.caller.user_id, pk=token_id).first()
        if token is None:
            raise NotFound("You have no such token.", code="token_not_found")
        return token

    def representation(self, token_id: UUID) -> Representation:
        return Representation(token_shape(self.own(token_id)))

    def lock(self, token_id: UUID) -> None:
        Token.objects.select_for_update(no_key=True).get(pk=self.own(token_id).pk)


class PersonalToken(OwnTokenView):
    proof = by_method(delete=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="revoke_personal_token",
        responses={204: None},
    )
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke the very token that asks; another one of its holder's with a managing scope."""
        check_own_token(self.caller, self.own(token_id))
        with self.changing(token_id=token_id):
            account_actions.revoke_token(token=self.own(token_id), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PersonalTokenRotation(OwnTokenView):
    proof = by_method(post=Proof.NEEDED)
    secret = ("token",)

    def check_may_replace(self) -> None:
        self.body(RotationBody, optional=True)  # an invalid body is rejected for every caller
        check_own_token(self.caller, self.own(self.kwargs["token_id"]), gives=True)

    @extend_schema(
        operation_id="rotate_personal_token",
        request=RotationBody,
        responses={201: NewTokenAnswer},
    )
    @conditional(lambda view: view.check_may_replace())
    def post(self, request: Request, token_id: UUID) -> Response:
        """A new token with the same scopes, groups and tools; the old one ends after the overlap.

        A token without a managing scope can only replace itself, and only until its own expiry.
        With a managing scope it can replace any token of its holder that has no more rights.
        """
        wanted = self.body(RotationBody, optional=True)
        return rotated(self, self.own(token_id), wanted, renew=manages_some(self.caller))
