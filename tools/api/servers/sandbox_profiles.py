"""`/api/v1/sandbox-profiles`: files, network and limits of tools that name a profile."""

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.bodies import ProfileAnswer, ProfileBody, ProfileChange, ProfilePage
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.documentation.schema import PROFILE
from tools.catalog.sandbox import profiles
from tools.definitions.callers import Scope
from tools.models import SandboxProfile
from tools.shapes import profile_shape
from tools.web.pagination import CursorPages, by_name, paging_parameters
from tools.web.reauthentication import Proof, by_method

CHANGED = {200: ProfileAnswer}


class ProfileView(ConditionalView):
    def representation(self, name: str) -> Representation:
        return Representation(profile_shape(profiles.find_profile(self.organization, name)))


class ProfileList(ProfileView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_sandbox_profiles",
        parameters=paging_parameters(by_name()),
        responses=ProfilePage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_sandboxprofile")
        rows = SandboxProfile.objects.filter(organization_id=self.caller.organization_id)
        pages = CursorPages(by_name())
        page: list[SandboxProfile] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([profile_shape(row) for row in page])

    @extend_schema(
        operation_id="create_sandbox_profile",
        request=ProfileBody,
        responses={201: ProfileAnswer},
        examples=[PROFILE],
    )
    def post(self, request: Request) -> Response:
        """Paths outside the organization's workspace only a superuser may share."""
        self.require("add_sandboxprofile")
        row = profiles.create_profile(
            organization=self.organization,
            profile=self.given(),
            by=self.actor,
            everywhere=self.caller.is_superuser,
        )
        headers = {"Location": f"/api/v1/sandbox-profiles/{row.name}"}
        return self.answer(self.representation(row.name), status.HTTP_201_CREATED, headers)


class ProfileDetail(ProfileView):
    scope = Scope.CATALOG
    proof = by_method(put=Proof.NEEDED, patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_sandbox_profile", responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_sandboxprofile")
        return self.answer(self.representation(name))

    @extend_schema(operation_id="replace_sandbox_profile", request=ProfileChange, responses=CHANGED)
    def put(self, request: Request, name: str) -> Response:
        """Replace the profile; missing fields get the defaults of a new profile."""
        return self._replace(name, lambda row: {"name": row.name})

    @extend_schema(operation_id="change_sandbox_profile", request=ProfileChange, responses=CHANGED)
    def patch(self, request: Request, name: str) -> Response:
        """Change the given fields. Tools that name it use them from their next call on."""
        return self._replace(name, profiles.written)

    @extend_schema(
        operation_id="delete_sandbox_profile",
        responses={204: None},
    )
    @conditional("delete_sandboxprofile")
    def delete(self, request: Request, name: str) -> Response:
        """Refused while tools name it."""
        profiles.delete_profile(row=self._row(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _replace(self, name: str, base: Callable[[SandboxProfile], dict[str, Any]]) -> Response:
        """The given fields on top of the `base`. Paths are checked before anything is locked."""
        self.require("change_sandboxprofile")
        row, given = self._row(name), self.given()
        profiles.examine_profile(
            row=row, profile=base(row) | given, everywhere=self.caller.is_superuser
        )
        with self.changing(name=name):
            now, known = self._row(name), row.allowed_paths
            profiles.keep_profile(
                row=now, profile=base(now) | given, by=self.actor, known_paths=known
            )
            return self.answer(self.representation(name))

    def _row(self, name: str) -> SandboxProfile:
        return profiles.find_profile(self.organization, name)
