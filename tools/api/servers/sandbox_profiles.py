"""`/api/v1/sandbox-profiles`: files, network and limits of tools that name a profile."""

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from sandbox.spec import Backend
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import Page
from tools.api.common.serializer_fields import (
    LEVELS,
    Items,
    Strict,
    Text,
)
from tools.api.documentation import PROFILE
from tools.catalog.sandbox import credentials, profiles
from tools.definitions.callers import Scope
from tools.models import EgressCredential, SandboxProfile
from tools.shapes.catalog import credential_shape, profile_shape
from tools.web.cursor_pagination import CursorPages, by_name, paging_parameters
from tools.web.reauthentication import Proof, by_method


class PathBody(serializers.Serializer[Any]):
    path = serializers.CharField()
    mode = serializers.ChoiceField(choices=["ro", "rw"], required=False)


class ProfileChange(serializers.Serializer[Any]):
    """A sandbox profile. `tools.catalog.sandbox.profiles` reads it and names every wrong field."""

    description = serializers.CharField(required=False)
    backend = serializers.ChoiceField(choices=[str(one) for one in Backend], required=False)
    minimum_isolation = serializers.ChoiceField(choices=LEVELS, required=False)
    allow_filesystem = serializers.BooleanField(required=False)
    allowed_paths = PathBody(many=True, required=False)
    allow_network = serializers.BooleanField(required=False)
    allowed_hosts = Items(
        child=serializers.JSONField(),
        required=False,
        help_text="Hosts, or objects of host, ports, methods, paths and credential.",
    )
    proxy = serializers.BooleanField(required=False)
    network_when_restricted = serializers.BooleanField(required=False)
    max_memory_bytes = serializers.IntegerField(required=False)
    max_cpu_time = serializers.CharField(required=False)
    max_processes = serializers.IntegerField(required=False, allow_null=True)
    max_disk_bytes = serializers.IntegerField(required=False)
    max_files = serializers.IntegerField(required=False)
    quota_bytes = serializers.IntegerField(required=False)
    quota_files = serializers.IntegerField(required=False)


class ProfileBody(ProfileChange):
    name = serializers.CharField(max_length=63)


class ProfileAnswer(ProfileBody):
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class ProfilePage(Page):
    results = ProfileAnswer(many=True)


class CredentialChange(serializers.Serializer[Any]):
    header = serializers.CharField(max_length=64, required=False)
    value = serializers.CharField(required=False, write_only=True)


class CredentialReplacement(Strict):
    name = Text(required=False, max_length=63, help_text="As it is; it cannot be changed.")
    header = Text(max_length=64)
    value = Text(max_length=8192)


class CredentialBody(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    header = serializers.CharField(max_length=64, help_text="Such as Authorization.")
    value = serializers.CharField(help_text="Such as Bearer …; kept encrypted, never shown again.")


class CredentialAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    header = serializers.CharField()
    value = serializers.CharField(help_text="Always …")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class CredentialPage(Page):
    results = CredentialAnswer(many=True)


CHANGED = {200: ProfileAnswer}
CHANGED_CREDENTIAL = {200: CredentialAnswer}


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
            profile=self.json_body(),
            by=self.actor,
            everywhere=self.caller.is_superuser,
        )
        headers = {"Location": f"/api/v1/sandbox-profiles/{row.name}"}
        return self.resource_response(
            self.representation(row.name), status.HTTP_201_CREATED, headers
        )


class ProfileDetail(ProfileView):
    scope = Scope.CATALOG
    proof = by_method(put=Proof.NEEDED, patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_sandbox_profile", responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_sandboxprofile")
        return self.resource_response(self.representation(name))

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
        row, given = self._row(name), self.json_body()
        profiles.examine_profile(
            row=row, profile=base(row) | given, everywhere=self.caller.is_superuser
        )
        with self.open_change(name=name):
            now, known = self._row(name), row.allowed_paths
            profiles.keep_profile(
                row=now, profile=base(now) | given, by=self.actor, known_paths=known
            )
            return self.resource_response(self.representation(name))

    def _row(self, name: str) -> SandboxProfile:
        return profiles.find_profile(self.organization, name)


class CredentialView(ConditionalView):
    def representation(self, name: str) -> Representation:
        row = credentials.find_credential(self.organization, name)
        return Representation(credential_shape(row), (row.sealed,))


class CredentialList(CredentialView):
    scope = Scope.ORGANIZATION
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_egress_credentials",
        parameters=paging_parameters(by_name()),
        responses=CredentialPage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_egresscredential")
        rows = EgressCredential.objects.filter(organization_id=self.caller.organization_id)
        pages = CursorPages(by_name())
        page: list[EgressCredential] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([credential_shape(row) for row in page])

    @extend_schema(
        operation_id="create_egress_credential",
        request=CredentialBody,
        responses={201: CredentialAnswer},
    )
    def post(self, request: Request) -> Response:
        """A list of hosts names it; the broker adds it to requests to that host."""
        self.require("add_egresscredential")
        row = credentials.create_credential(
            organization=self.organization, credential=self.json_body(), by=self.actor
        )
        headers = {"Location": f"/api/v1/egress-credentials/{row.name}"}
        return self.resource_response(
            self.representation(row.name), status.HTTP_201_CREATED, headers
        )


class CredentialDetail(CredentialView):
    scope = Scope.ORGANIZATION
    proof = by_method(put=Proof.NEEDED, patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_egress_credential", responses=CHANGED_CREDENTIAL)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_egresscredential")
        return self.resource_response(self.representation(name))

    @extend_schema(
        operation_id="replace_egress_credential",
        request=CredentialReplacement,
        responses=CHANGED_CREDENTIAL,
    )
    @conditional("change_egresscredential")
    def put(self, request: Request, name: str) -> Response:
        """Header and value; runs that begin now use them. The mask in place of the value keeps
        it."""
        row = self._row(name)
        wanted = {"name": row.name} | self.body(CredentialReplacement)
        changed = credentials.replace_credential(row=row, credential=wanted, by=self.actor)
        return self.resource_response(self.representation(changed.name))

    @extend_schema(
        operation_id="change_egress_credential",
        request=CredentialChange,
        responses=CHANGED_CREDENTIAL,
    )
    @conditional("change_egresscredential")
    def patch(self, request: Request, name: str) -> Response:
        """Another header, another value, or both; runs that begin now use it."""
        row = self._row(name)
        wanted = {"name": row.name, "header": row.header} | self.json_body()
        credentials.replace_credential(row=row, credential=wanted, by=self.actor)
        return self.resource_response(self.representation(name))

    @extend_schema(
        operation_id="delete_egress_credential",
        responses={204: None},
    )
    @conditional("delete_egresscredential")
    def delete(self, request: Request, name: str) -> Response:
        """Refused while a list of hosts names it."""
        credentials.delete_credential(row=self._row(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _row(self, name: str) -> EgressCredential:
        return credentials.find_credential(self.organization, name)
