"""`/api/v1/tokens`: a person's own tokens, with a password, for use without a browser."""

from functools import partial
from typing import Any

from django.contrib.auth import authenticate
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from audit.proof import Proof, by_method
from tools.api.agents import new_token_shape
from tools.api.authentication import source_ip
from tools.api.bodies import ErrorAnswer, LoginBody, NewTokenAnswer
from tools.api.conditional import ConditionalView, Representation
from tools.api.idempotency import KeyedView, Keying, answered_once, request_of
from tools.api.schema import CallerSchema
from tools.definitions.callers import Caller, Scope
from tools.errors import Forbidden, NotFound, Unauthenticated
from tools.models import Token, User
from tools.policy import actions, attempts, second_factors
from tools.policy.callers import actor_of, caller_of_user
from tools.policy.codes import factor_of
from tools.shapes import token_shape


class PersonalTokens(KeyedView):
    """Not behind a token: this is where a person gets the first one."""

    proof = by_method(post=Proof.NOT_NEEDED)

    keying = Keying.AFTER_PROOF
    secret = ("token",)
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    schema = CallerSchema()

    @extend_schema(
        operation_id="create_personal_token",
        request=LoginBody,
        responses={201: NewTokenAnswer, 401: ErrorAnswer, 403: ErrorAnswer, 429: ErrorAnswer},
        auth=[],
    )
    def post(self, request: Request) -> HttpResponseBase:
        """A personal token for a name and a password; shown once."""
        wanted = LoginBody(data=request.data)
        wanted.is_valid(raise_exception=True)
        given = wanted.validated_data
        ip = source_ip(request)
        with attempts.guarded(username=given["username"], source_ip=ip) as attempt:
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
    token, text = actions.create_token(
        user=user,
        by=actor_of(caller),
        giver=caller,
        scopes=given.get("scopes", [*Scope]),
        label=given["label"],
        days=given.get("days"),
        groups=given.get("groups"),
        tools=given.get("tools"),
    )
    address = f"/api/v1/tokens/{token.pk}"
    shape = new_token_shape(token, text)
    return Response(shape, status.HTTP_201_CREATED, headers={"Location": address})


def _prove_second_factor(user: User, code: str, ip: str) -> None:
    """As at the login page; only a security key has no place here.

    Raises `Unauthenticated`, `TooManyAttempts`, and `Forbidden` for who must set one up first.
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
    what = attempts.SECOND_FACTOR
    with attempts.guarded(username=user.username, source_ip=ip, what=what) as attempt:
        if not factor_of(user=user, code=code, by=by):
            raise Unauthenticated("The code is wrong, or was used before.", code="login_failed")
        attempt.succeeded()


class PersonalToken(ConditionalView):
    proof = by_method(delete=Proof.NOT_NEEDED)
    scope = Scope.READ
    volatile = frozenset({"last_used_at"})

    def representation(self, token_id: Any) -> Representation:
        return Representation(token_shape(self._token(token_id)))

    def lock(self, token_id: Any) -> None:
        Token.objects.select_for_update(no_key=True).get(pk=self._token(token_id).pk)

    @extend_schema(operation_id="revoke_personal_token", responses={204: None, 404: ErrorAnswer})
    def delete(self, request: Request, token_id: Any) -> Response:
        """Revoke one of the caller's own tokens."""
        with self.changing(token_id=token_id):
            actions.revoke_token(token=self._token(token_id), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _token(self, token_id: Any) -> Token:
        user = User.objects.filter(pk=self.caller.user_id).first()
        token = user.tokens.filter(pk=token_id).first() if user else None
        if token is None:
            raise NotFound("You have no such token.", code="token_not_found")
        return token
