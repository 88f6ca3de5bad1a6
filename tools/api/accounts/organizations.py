"""`/api/v1/organizations` and `/api/v1/tiers`: they span organizations, so they are for
superusers."""

from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from sandbox.spec import IsolationLevel
from tools.accounts import account_actions
from tools.api.accounts.license_bodies import (
    OrganizationChanged,
    TierChanged,
    TierFollows,
    TierWanted,
)
from tools.api.common.bodies import (
    OrganizationAnswer,
    OrganizationBody,
    OrganizationChange,
    OrganizationPage,
    TierAnswer,
    TierChange,
    TierPage,
)
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.filters import filtered
from tools.api.common.idempotency import Keying
from tools.catalog.builtins import install_builtins
from tools.definitions.callers import Scope
from tools.errors import Forbidden, NotFound
from tools.licensing import tiers as tier_actions
from tools.licensing.licenses import preview
from tools.models import LicenseTier, Organization
from tools.shapes import organization_shape, tier_shape
from tools.web.pagination import CursorPages, by_name, paging_parameters
from tools.web.reauthentication import Proof, by_method

_TIERS = {"rank": "rank", "-rank": "-rank", "name": "name", "-name": "-name"}
LIMITS = ("max_concurrency", "max_queue_depth")
QUOTA = ("workspace_max_files", "workspace_max_bytes")


class PlatformView(ConditionalView):
    scope = Scope.ORGANIZATION

    def require_superuser(self) -> None:
        reads = self.request.method in SAFE_METHODS
        self.require("view_organization" if reads else "change_organization")
        if not self.caller.is_superuser:
            raise Forbidden("Only a superuser may do this.", code="not_permitted")

    def tier(self, name: str) -> LicenseTier:
        found = LicenseTier.objects.filter(name=name).first()
        if found is None:
            known = ", ".join(LicenseTier.objects.values_list("name", flat=True))
            raise NotFound(f"There is no tier {name[:60]!r}, only: {known}.", code="tier_not_found")
        return found

    def row(self, slug: str) -> Organization:
        found = Organization.objects.select_related("tier").filter(slug=slug).first()
        if found is None:
            raise NotFound("There is no such organization.", code="organization_not_found")
        return found


class OrganizationView(PlatformView):
    volatile = frozenset({"license"})  # its state follows from the clock

    def representation(self, slug: str) -> Representation:
        return Representation(organization_shape(self.row(slug)))


class OrganizationList(OrganizationView):
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_organizations",
        parameters=[
            OpenApiParameter("q", OpenApiTypes.STR, description="In its slug."),
            OpenApiParameter("tier", OpenApiTypes.STR, description="A tier's name."),
            *paging_parameters(by_name("slug")),
        ],
        responses=OrganizationPage,
    )
    def get(self, request: Request) -> Response:
        self.require_superuser()
        pages = CursorPages(by_name("slug"))
        columns = {"q": "slug__icontains", "tier": "tier__name"}
        every = filtered(Organization.objects.select_related("tier"), self.query, columns)
        page: list[Organization] = pages.paginate_queryset(every, request, self) or []
        return pages.get_paginated_response([organization_shape(row) for row in page])

    @extend_schema(
        operation_id="create_organization",
        request=OrganizationBody,
        responses={201: OrganizationAnswer},
    )
    @transaction.atomic
    def post(self, request: Request) -> Response:
        """A new organization with the built-in tools."""
        self.require_superuser()
        wanted = self.body(OrganizationBody)
        wanted["tier"] = self.tier(wanted["tier"])
        organization = account_actions.create_organization(by=self.actor, **wanted)
        install_builtins(organization=organization, by=self.actor)
        address = f"/api/v1/organizations/{organization.slug}"
        return self.answer(
            self.representation(organization.slug),
            status.HTTP_201_CREATED,
            headers={"Location": address},
        )


class OrganizationDetail(OrganizationView):
    proof = by_method(patch=Proof.NEEDED)

    def lock(self, slug: str) -> None:
        """The tiers first, as where a tier is changed."""
        tiers = LicenseTier.objects.order_by("pk").select_for_update(no_key=True)
        list(tiers.values_list("pk"))
        rows = Organization.objects.select_for_update(no_key=True)
        rows.values_list("pk").get(pk=self.row(slug).pk)

    @extend_schema(operation_id="get_organization", responses=OrganizationAnswer)
    def get(self, request: Request, slug: str) -> Response:
        self.require_superuser()
        return self.answer(self.representation(slug))

    @extend_schema(
        operation_id="change_organization",
        request=OrganizationChange,
        responses=OrganizationChanged,
    )
    @conditional(PlatformView.require_superuser)
    def patch(self, request: Request, slug: str) -> Response:
        """Change the given fields, all or nothing. `tier_change` has the effects of another
        tier."""
        wanted, organization = self.body(OrganizationChange), self.row(slug)
        change = None
        if "tier" in wanted:
            tier = self.tier(wanted["tier"])
            change = tier_actions.set_tier(organization=organization, tier=tier, by=self.actor)
        if "name" in wanted:
            account_actions.rename_organization(
                organization=organization, name=wanted["name"], by=self.actor
            )
        if "minimum_isolation" in wanted:
            minimum = IsolationLevel(wanted["minimum_isolation"])
            account_actions.set_isolation(organization=organization, minimum=minimum, by=self.actor)
        if "allowed_hosts" in wanted:
            hosts = wanted["allowed_hosts"]
            account_actions.set_allowed_hosts(organization=organization, hosts=hosts, by=self.actor)
        if "time_zone" in wanted:
            name = wanted["time_zone"]
            account_actions.set_time_zone(organization=organization, name=name, by=self.actor)
        if limits := {name: wanted[name] for name in LIMITS if name in wanted}:
            account_actions.set_limits(organization=organization, by=self.actor, **limits)
        if quota := {name: wanted[name] for name in QUOTA if name in wanted}:
            account_actions.set_workspace_quota(organization=organization, by=self.actor, **quota)
        if "output_days" in wanted:
            days = wanted["output_days"]
            account_actions.set_output_days(organization=organization, days=days, by=self.actor)
        beside = {"tier_change": change.as_dict()} if change else {}
        return self.answer(self.representation(slug), beside=beside)


class TierPreview(PlatformView):
    keying = Keying.IGNORED
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="preview_tier",
        request=TierWanted,
        responses=TierFollows,
    )
    def post(self, request: Request, slug: str) -> Response:
        """Preview the effects of another tier on an organization. Nothing is saved."""
        self.require_superuser()
        tier = self.tier(self.body(TierWanted)["tier"])
        return Response(preview(self.row(slug), tier).as_dict())


class TierList(PlatformView):
    @extend_schema(
        operation_id="list_tiers", parameters=paging_parameters(_TIERS), responses=TierPage
    )
    def get(self, request: Request) -> Response:
        """The license tiers, the smallest first."""
        self.require("view_licensetier")
        pages = CursorPages(_TIERS)
        page: list[LicenseTier] = (
            pages.paginate_queryset(LicenseTier.objects.all(), request, self) or []
        )
        return pages.get_paginated_response([tier_shape(tier) for tier in page])


class TierDetail(PlatformView):
    proof = by_method(patch=Proof.NEEDED)

    def representation(self, name: str) -> Representation:
        return Representation(tier_shape(self.tier(name)))

    def lock(self, name: str) -> None:
        LicenseTier.objects.select_for_update(no_key=True).get(pk=self.tier(name).pk)

    @extend_schema(operation_id="get_tier", responses=TierAnswer)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_licensetier")
        return self.answer(self.representation(name))

    @extend_schema(
        operation_id="change_tier",
        request=TierChange,
        responses=TierChanged,
    )
    @conditional(PlatformView.require_superuser)
    def patch(self, request: Request, name: str) -> Response:
        """Change a tier; it applies to every organization that has it from the next request on."""
        tier = self.tier(name)
        follows = tier_actions.change_tier(tier=tier, by=self.actor, **self.body(TierChange))
        organizations = {slug: change.as_dict() for slug, change in follows.items()}
        return self.answer(self.representation(name), beside={"organizations": organizations})
