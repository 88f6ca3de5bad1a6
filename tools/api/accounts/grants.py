"""`/api/v1/grants`: who may do what. For people only."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts.grants import grant_actions
from tools.accounts.grants.grant_actions import KINDS, SUBJECTS
from tools.accounts.grants.grant_ids import grant_id, read_grant_id
from tools.accounts.grants.granted import granted
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import Page
from tools.api.common.serializer_fields import Items, Strict, Text
from tools.api.common.views import CallerView
from tools.definitions.callers import Scope
from tools.errors import Malformed, NotFound
from tools.models.permission import GrantRow, Sought
from tools.web.cursor_pagination import (
    cursor_error,
    page_reference,
    paging_parameters,
    parse_page_size,
)
from tools.web.reauthentication import Proof, by_method

FILTERS = (*SUBJECTS, "tool", "group")
_DESCENDING = "-subject"
_ORDERS = {"subject": "subject", _DESCENDING: _DESCENDING}


def _name_list(help_text: str) -> Items:
    return Items(child=Text(max_length=128), max_length=200, required=False, help_text=help_text)


class GrantBody(Strict):
    """One of `agent`, `user` and `people_group`, and the grants."""

    agent = Text(required=False, max_length=63)
    user = Text(required=False, max_length=150)
    people_group = Text(required=False, max_length=150)
    tools = _name_list("Tools it may execute; * is all.")
    tool_groups = _name_list("Groups whose every tool it may execute.")
    groups = _name_list("Groups it may request; * is all. Not of a group of people.")
    permissions = _name_list("What tools require; * is all. Not of a group of people.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        subjects = [kind for kind in SUBJECTS if kind in attrs]
        if len(subjects) != 1:
            raise serializers.ValidationError(f"Name one of {', '.join(SUBJECTS)}.")
        if not any(attrs.get(what) for what in KINDS):
            raise serializers.ValidationError(f"Name something of {', '.join(KINDS)}.")
        return attrs


class GrantSubject(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=[*SUBJECTS])
    name = serializers.CharField()


class GrantAnswer(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="Stable: the same grant has it again.")
    subject = GrantSubject()
    kind = serializers.ChoiceField(choices=[*KINDS.values()])
    name = serializers.CharField()


class GrantList(serializers.Serializer[Any]):
    results = GrantAnswer(many=True)


class GrantPage(Page):
    results = GrantAnswer(many=True)


class Grants(CallerView):
    scope = Scope.AGENTS
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_grants",
        parameters=[
            *(OpenApiParameter(name, OpenApiTypes.STR) for name in FILTERS),
            *paging_parameters(_ORDERS),
        ],
        responses=GrantPage,
    )
    def get(self, request: Request) -> Response:
        """One row per grant. Grants that people hold through a group are listed at the group."""
        size = parse_page_size(request)
        before, beside = _parse_grant_cursor(self.query.get("cursor"))
        descending = self.query.get("ordering") == _DESCENDING
        rows = granted(
            self.caller, self._filters(), most=size + 1, beside=beside, before=before != descending
        )
        rows = rows[::-1] if descending else rows
        more = len(rows) > size
        page = rows[-size:] if before else rows[:size]
        ahead = before or more
        behind = more if before else beside is not None
        return Response(
            {
                "results": [grant_shape(row) for row in page],
                "next": _page_address(request, "after", page[-1]) if page and ahead else None,
                "previous": _page_address(request, "before", page[0]) if page and behind else None,
            }
        )

    @extend_schema(
        operation_id="give_grants",
        request=GrantBody,
        responses={200: GrantList},
    )
    def post(self, request: Request) -> Response:
        """Grant what is not held yet, and return all named grants. Safe to repeat.

        You can only grant what you hold, and cannot change your own grants.
        """
        grant_actions.require_some(self.caller)
        wanted = self.body(GrantBody)
        kind = next(kind for kind in SUBJECTS if kind in wanted)
        kinds = {what: wanted[what] for what in KINDS if wanted.get(what)}
        rows = grant_actions.give(giver=self.caller, kind=kind, name=wanted[kind], wanted=kinds)
        return Response({"results": [grant_shape(row) for row in rows]})

    def _filters(self) -> Sought:
        query = self.query
        named = [kind for kind in SUBJECTS if kind in query]
        if len(named) > 1:
            raise Malformed(f"Name one of {', '.join(SUBJECTS)} at most.")
        kind = named[0] if named else None
        return Sought([], kind, query.get(kind or ""), query.get("tool"), query.get("group"))


class GrantDetail(ConditionalView):
    scope = Scope.AGENTS
    proof = by_method(delete=Proof.NOT_NEEDED)

    def representation(self, grant: str) -> Representation:
        return Representation(grant_shape(_find_grant(grant)))

    def lock(self, grant: str) -> None:
        """A grant has no content to compare; `take` locks its holder first."""

    @extend_schema(operation_id="take_grant", responses={204: None})
    @conditional(lambda view: grant_actions.require_some(view.caller))
    def delete(self, request: Request, grant: str) -> Response:
        """Revoke the grant: calls are refused from the next request on, also those that wait
        already."""
        grant_actions.take(giver=self.caller, row=_find_grant(grant))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _find_grant(grant: str) -> GrantRow:
    row = read_grant_id(grant)
    if row is None or row.subject_kind not in SUBJECTS or row.kind not in KINDS.values():
        raise NotFound("There is no such grant.", code="grant_not_found")
    return row


def grant_shape(row: GrantRow) -> dict[str, object]:
    return {
        "id": grant_id(row),
        "subject": {"kind": row.subject_kind, "name": row.subject},
        "kind": row.kind,
        "name": row.name,
    }


def _parse_grant_cursor(raw: str | None) -> tuple[bool, GrantRow | None]:
    if not raw:
        return False, None
    side, _, text = raw.partition(".")
    row = read_grant_id(text)
    if side not in {"after", "before"} or row is None:
        raise cursor_error()
    return side == "before", row


def _page_address(request: Request, side: str, row: GrantRow) -> str:
    return page_reference(request, f"{side}.{grant_id(row)}")
