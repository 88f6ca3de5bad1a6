"""`/api/v1/tokens`: a person's own tokens, issued after a password check, for use without a
browser."""

from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth import authenticate
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts import account_actions
from tools.accounts.account_actions import LONGEST_TOKEN_LABEL, MOST_TOKEN_DAYS
from tools.accounts.callers import actor_of, caller_of_user
from tools.accounts.grants.impersonation import check_may_issue
from tools.accounts.login import lockout, second_factors
from tools.accounts.login.second_factors import verify_code
from tools.accounts.user_permissions import check_own_token, has_managing_scope
from tools.api.accounts.agents import AgentView
from tools.api.common.authentication import source_ip
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.idempotency import Keying, idempotent_request, respond_once
from tools.api.common.pagination import Page
from tools.api.common.serializer_fields import (
    Duration,
    Items,
    Strict,
    Text,
    Whole,
    text_list,
)
from tools.api.common.views import CallerView
from tools.definitions.callers import Caller, Scope
from tools.errors import Forbidden, NotFound, Unauthenticated
from tools.models import Token, User
from tools.shapes.accounts import token_shape
from tools.web.cursor_pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

LONGEST_OVERLAP_S = 7 * 86_400.0


class TokenBody(Strict):
    label = Text(  # type: ignore[assignment]
        required=False, max_length=LONGEST_TOKEN_LABEL, allow_blank=True, default=""
    )
    scopes = Items(
        child=serializers.ChoiceField(choices=[Scope.READ.value, Scope.EXECUTE.value]),
        required=False,
        allow_empty=False,
    )
    days = Whole(required=False, min_value=1, max_value=MOST_TOKEN_DAYS)
    groups = text_list(required=False, allow_null=True, help_text="Narrower than the holder's.")
    tools = text_list(required=False, allow_null=True, help_text="The only tools it is good for.")


class RotationBody(Strict):
    overlap = Duration(
        required=False,
        least_s=0,
        longest_s=LONGEST_OVERLAP_S,
        help_text="For how long the old token stays good, such as PT1H; P7D at most. Absent: not.",
    )


class LoginBody(Strict):
    username = Text(max_length=150)
    password = Text(max_length=4096, style={"input_type": "password"})
    code = Text(
        required=False,
        max_length=40,
        help_text="Of the authenticator app, or a recovery code: for who has a second factor.",
    )
    label = Text(  # type: ignore[assignment]
        required=False, max_length=LONGEST_TOKEN_LABEL, allow_blank=True, default=""
    )
    days = Whole(required=False, min_value=1, max_value=MOST_TOKEN_DAYS)
    scopes = Items(
        child=serializers.ChoiceField(choices=[scope.value for scope in Scope]),
        required=False,
        allow_empty=False,
    )
    groups = text_list(required=False, allow_null=True, help_text="Narrower than the holder's.")
    tools = text_list(required=False, allow_null=True, help_text="The only tools it is good for.")


class NewTokenAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    token = serializers.CharField(
        allow_null=True, help_text="Shown this once; null where a replay withholds it."
    )
    expires_at = serializers.DateTimeField()


class TokenAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment]
    prefix = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    groups = serializers.ListField(child=serializers.CharField(), allow_null=True)
    tools = serializers.ListField(child=serializers.CharField(), allow_null=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class TokenPage(Page):
    results = TokenAnswer(many=True)


class TokenList(AgentView):
    secret = ("token",)
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_agent_tokens",
        parameters=paging_parameters(newest_first()),
        responses=TokenPage,
    )
    def get(self, request: Request, slug: str) -> Response:
        self.require("view_token")
        tokens = self.find_agent(slug).service_account.tokens.all()
        pages = CursorPages()
        page: list[Token] = pages.paginate_queryset(tokens, request, self) or []
        return pages.get_paginated_response([token_shape(token) for token in page])

    def check_replay(self, **place: Any) -> None:
        narrowing = self.body(TokenBody, optional=True)
        check_may_issue(
            self.caller,
            self.find_agent(place["slug"]).service_account,
            groups=narrowing.get("groups"),
            tools=narrowing.get("tools"),
        )

    @extend_schema(
        operation_id="create_agent_token",
        request=TokenBody,
        responses={201: NewTokenAnswer},
    )
    def post(self, request: Request, slug: str) -> Response:
        """A new token for the agent; it is shown in this answer and never again.

        A token cannot permit more than you hold: narrow it by `groups` and `tools`, or ask a user
        who holds as much.
        """
        self.require("add_token")
        agent = self.find_agent(slug)
        token, text = account_actions.create_token(
            user=agent.service_account,
            by=self.actor,
            giver=self.caller,
            **self.body(TokenBody, optional=True),
        )
        return token_response(token, text, request.path)


class OneToken(AgentView):
    volatile = frozenset({"last_used_at"})

    def representation(self, slug: str, token_id: UUID) -> Representation:
        return Representation(token_shape(self.find_token(self.find_agent(slug), token_id)))


class TokenDetail(OneToken):
    proof = by_method(delete=Proof.NOT_NEEDED)

    @extend_schema(operation_id="revoke_agent_token", responses={204: None})
    @conditional("delete_token")
    def delete(self, request: Request, slug: str, token_id: UUID) -> Response:
        """Revoke it: refused from the next request on."""
        account_actions.revoke_token(
            token=self.find_token(self.find_agent(slug), token_id), by=self.actor
        )
        return Response(status=status.HTTP_204_NO_CONTENT)


def _check_may_replace(view: ConditionalView) -> None:
    view.require("add_token")
    view.require("delete_token")


class TokenRotation(OneToken):
    proof = by_method(post=Proof.NEEDED)
    secret = ("token",)

    @extend_schema(
        operation_id="rotate_agent_token",
        request=RotationBody,
        responses={201: NewTokenAnswer},
    )
    @conditional(_check_may_replace)
    def post(self, request: Request, slug: str, token_id: UUID) -> Response:
        """A new token with the same scopes, groups and tools; the old one ends after the overlap.

        It is shown in this answer and never again, and lasts as long as the old one did.
        """
        wanted = self.body(RotationBody, optional=True)
        return replace_token(self, self.find_token(self.find_agent(slug), token_id), wanted)


def token_response(token: Token, text: str, address: str) -> Response:
    """The one answer that shows a new token. `address` is where tokens of its holder are."""
    ends = token_shape(token)["expires_at"]
    shape = {"id": str(token.pk), "token": text, "expires_at": ends}
    headers = {"Location": f"{address}/{token.pk}"}
    return Response(shape, status.HTTP_201_CREATED, headers=headers)


def replace_token(
    view: ConditionalView, token: Token, wanted: dict[str, Any], *, renew: bool = True
) -> Response:
    made, text = account_actions.rotate_token(
        token=token,
        by=view.actor,
        giver=view.caller,
        overlap_s=wanted.get("overlap", 0),
        renew=renew,
    )
    return token_response(made, text, view.request.path.rsplit("/", 2)[0])


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
        with lockout.limit_attempts(username=given["username"], source_ip=ip) as attempt:
            user = authenticate(None, username=given["username"], password=given["password"])
            if not isinstance(user, User):
                raise Unauthenticated("The name or the password is wrong.", code="login_failed")
            attempt.succeeded()
        _prove_second_factor(user, given.get("code", ""), ip)
        caller = caller_of_user(user, source_ip=ip)
        make = partial(_new_token, user, caller, given)
        keyed = idempotent_request(request, caller, left_out=("password", "code"))
        return respond_once(self, keyed, make) if keyed else make()


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
    return token_response(token, text, "/api/v1/tokens")


def _prove_second_factor(user: User, code: str, ip: str) -> None:
    """As at the login page, but without security keys.

    Raises `Unauthenticated`, `TooManyAttempts`, and `Forbidden` for a person who must set up a
    second factor first.
    """
    if not second_factors.has_factor(user):
        if second_factors.requires_factor(user):
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
    with lockout.limit_attempts(username=user.username, source_ip=ip, what=what) as attempt:
        if not verify_code(user=user, code=code, by=by):
            raise Unauthenticated("The code is wrong, or was used before.", code="login_failed")
        attempt.succeeded()


class OwnTokenView(ConditionalView):
    volatile = frozenset({"last_used_at"})
    scope = Scope.READ  # and a managing scope for other tokens

    def find_own_token(self, token_id: UUID) -> Token:
        token = Token.objects.filter(user_id=self.caller.user_id, pk=token_id).first()
        if token is None:
            raise NotFound("You have no such token.", code="token_not_found")
        return token

    def representation(self, token_id: UUID) -> Representation:
        return Representation(token_shape(self.find_own_token(token_id)))

    def lock(self, token_id: UUID) -> None:
        Token.objects.select_for_update(no_key=True).get(pk=self.find_own_token(token_id).pk)


class PersonalToken(OwnTokenView):
    proof = by_method(delete=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="revoke_personal_token",
        responses={204: None},
    )
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke the very token that asks; another one of its holder's with a managing scope."""
        check_own_token(self.caller, self.find_own_token(token_id))
        with self.open_change(token_id=token_id):
            account_actions.revoke_token(token=self.find_own_token(token_id), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PersonalTokenRotation(OwnTokenView):
    proof = by_method(post=Proof.NEEDED)
    secret = ("token",)

    def check_may_replace(self) -> None:
        self.body(RotationBody, optional=True)  # an invalid body is rejected for every caller
        check_own_token(self.caller, self.find_own_token(self.kwargs["token_id"]), gives=True)

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
        return replace_token(
            self, self.find_own_token(token_id), wanted, renew=has_managing_scope(self.caller)
        )
