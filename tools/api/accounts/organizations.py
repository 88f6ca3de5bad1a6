"""`/api/v1/organizations` and `/api/v1/tiers`: they span organizations, so they are for
superusers."""

from typing import Any

from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts import account_actions
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.idempotency import Keying
from tools.api.common.pagination import Page, filter_rows
from tools.api.common.serializer_fields import (
    LEVELS,
    Flag,
    Items,
    Strict,
    Text,
    Whole,
    text_list,
)
from tools.catalog.bounds import MOST, MOST_BYTES, MOST_DAYS
from tools.catalog.builtins import install_builtins
from tools.catalog.sandbox.hosts import MOST_RULES
from tools.definitions.callers import Scope
from tools.definitions.licenses import LicenseState
from tools.errors import Forbidden, NotFound
from tools.insight.impact_previews import change_terms, outlook_of_move, outlook_of_terms
from tools.licensing.tier_terms import terms_of
from tools.models import LicenseTier, Organization
from tools.shapes.accounts import organization_shape, tier_shape
from tools.web.cursor_pagination import CursorPages, by_name, paging_parameters
from tools.web.field_actions import change_organization_fields
from tools.web.reauthentication import Proof, by_method

_TIERS = {"rank": "rank", "-rank": "-rank", "name": "name", "-name": "-name"}


class TierWanted(Strict):
    tier = Text(max_length=60)


class TierFollows(serializers.Serializer[Any]):
    """What another tier means: names of tools and profiles."""

    tier_before = serializers.CharField(help_text="The tier that counted before.")
    tier = serializers.CharField(help_text="The tier that counts then.")
    disabled = serializers.ListField(
        child=serializers.CharField(),
        help_text="Custom tools beyond the limit, the newest first.",
    )
    enabled = serializers.ListField(
        child=serializers.CharField(),
        help_text="Custom tools that the licence had disabled, the oldest first.",
    )
    gated = serializers.ListField(
        child=serializers.CharField(),
        help_text="Tools in use that are refused then, and stay enabled.",
    )
    opened = serializers.ListField(
        child=serializers.CharField(), help_text="Tools in use that are no longer refused."
    )
    profiles = serializers.ListField(
        child=serializers.CharField(), help_text="Sandbox profiles that stop working."
    )


class PreviewMark(serializers.Serializer[Any]):
    preview_mark = serializers.CharField(
        help_text="Of this preview: a change with it is made only if the same would follow."
    )


class TierPreviewed(TierFollows, PreviewMark):
    """What would follow for the organization."""


class TermsPreviewed(PreviewMark):
    organizations = serializers.DictField(
        child=TierFollows(), help_text="What would follow, by the slugs of organizations."
    )
    more = serializers.IntegerField(help_text="Organizations whose tools were not looked at.")


def mark_field() -> Text:
    return Text(
        max_length=64,
        required=False,
        help_text="Of the preview; needed where tools or profiles would be disabled, refused or "
        "enabled.",
    )


class OrganizationBody(Strict):
    slug = Text(max_length=63)
    name = Text(max_length=200)
    tier = Text(max_length=60, required=False, default="Core")


class OrganizationChange(Strict):
    name = Text(max_length=200, required=False)
    tier = Text(max_length=60, required=False)
    preview_mark = mark_field()
    minimum_isolation = serializers.ChoiceField(choices=LEVELS, required=False)
    allowed_hosts = Items(
        child=serializers.JSONField(),
        required=False,
        max_length=MOST_RULES,
        help_text="What web_fetch may reach: hosts, or objects as a sandbox profile has them.",
    )
    time_zone = Text(
        max_length=64,
        required=False,
        help_text="Such as Europe/Berlin, in which windows of groups and days of quotas are meant.",
    )
    max_concurrency = Whole(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MOST,
        help_text="How many of its calls run at once; null is no limit.",
    )
    max_queue_depth = Whole(
        required=False,
        min_value=1,
        max_value=MOST,
        help_text="How many of its calls may wait for a worker; one more is refused.",
    )
    workspace_max_files = Whole(
        required=False,
        min_value=1,
        max_value=MOST,
        help_text="How many files and folders its workspace may hold; write_file refuses one more.",
    )
    workspace_max_bytes = Whole(
        required=False,
        min_value=1,
        max_value=MOST_BYTES,
        help_text="How many bytes its workspace may hold; write_file refuses more.",
    )
    output_days = Whole(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MOST_DAYS,
        help_text="For how many days outputs are kept; null keeps them without an end.",
    )


class LicenseAnswer(serializers.Serializer[Any]):
    """The current state of the organization's license."""

    id = serializers.CharField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    grace_ends_at = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(choices=[*LicenseState])
    effective_tier = serializers.CharField()


class OrganizationAnswer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    name = serializers.CharField()
    tier = serializers.CharField()
    license = LicenseAnswer()
    minimum_isolation = serializers.ChoiceField(choices=LEVELS)
    allowed_hosts = serializers.ListField(child=serializers.JSONField())
    time_zone = serializers.CharField()
    max_concurrency = serializers.IntegerField(allow_null=True)
    max_queue_depth = serializers.IntegerField()
    workspace_max_files = serializers.IntegerField()
    workspace_max_bytes = serializers.IntegerField()
    output_days = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()


class OrganizationPage(Page):
    results = OrganizationAnswer(many=True)


class TierChange(Strict):
    builtin_tools = text_list(required=False, allow_null=True)
    max_custom_tools = Whole(required=False, allow_null=True, min_value=0, max_value=1_000_000)
    isolation_levels = text_list(required=False, allow_null=True)
    custom_sandbox_profiles = Flag(required=False)
    preview_mark = mark_field()


class TierAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    rank = serializers.IntegerField()
    builtin_tools = serializers.ListField(child=serializers.CharField(), allow_null=True)
    max_custom_tools = serializers.IntegerField(allow_null=True)
    isolation_levels = serializers.ListField(child=serializers.CharField(), allow_null=True)
    custom_sandbox_profiles = serializers.BooleanField()


class TierPage(Page):
    results = TierAnswer(many=True)


class OrganizationChanged(OrganizationAnswer):
    tier_change = TierFollows(required=False, help_text="Where a tier was given.")


class TierChanged(TierAnswer):
    organizations = serializers.DictField(
        child=TierFollows(), help_text="What follows, by the slugs of organizations."
    )


class PlatformView(ConditionalView):
    scope = Scope.ORGANIZATION

    def require_superuser(self) -> None:
        reads = self.request.method in SAFE_METHODS
        self.require("view_organization" if reads else "change_organization")
        if not self.caller.is_superuser:
            raise Forbidden("Only a superuser may do this.", code="not_permitted")

    def find_tier(self, name: str) -> LicenseTier:
        found = LicenseTier.objects.filter(name=name).first()
        if found is None:
            known = ", ".join(LicenseTier.objects.values_list("name", flat=True))
            raise NotFound(f"There is no tier {name[:60]!r}, only: {known}.", code="tier_not_found")
        return found

    def find_organization(self, slug: str) -> Organization:
        found = Organization.objects.select_related("tier").filter(slug=slug).first()
        if found is None:
            raise NotFound("There is no such organization.", code="organization_not_found")
        return found


class OrganizationView(PlatformView):
    volatile = frozenset({"license"})  # its state follows from the clock

    def representation(self, slug: str) -> Representation:
        return Representation(organization_shape(self.find_organization(slug)))


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
        every = filter_rows(Organization.objects.select_related("tier"), self.query, columns)
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
        wanted["tier"] = self.find_tier(wanted["tier"])
        organization = account_actions.create_organization(by=self.actor, **wanted)
        install_builtins(organization=organization, by=self.actor)
        address = f"/api/v1/organizations/{organization.slug}"
        return self.resource_response(
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
        rows.values_list("pk").get(pk=self.find_organization(slug).pk)

    @extend_schema(operation_id="get_organization", responses=OrganizationAnswer)
    def get(self, request: Request, slug: str) -> Response:
        self.require_superuser()
        return self.resource_response(self.representation(slug))

    @extend_schema(
        operation_id="change_organization",
        request=OrganizationChange,
        responses=OrganizationChanged,
    )
    @conditional(PlatformView.require_superuser)
    def patch(self, request: Request, slug: str) -> Response:
        """Change the given fields, all or nothing. `tier_change` has the effects of another
        tier, which needs the mark of its preview where something follows."""
        wanted, organization = self.body(OrganizationChange), self.find_organization(slug)
        if "tier" in wanted:
            wanted["tier"] = self.find_tier(wanted["tier"])
        change = change_organization_fields(
            organization=organization, by=self.actor, changes=wanted
        )
        beside = {"tier_change": change.as_dict()} if change else {}
        return self.resource_response(self.representation(slug), beside=beside)


class TierPreview(PlatformView):
    keying = Keying.IGNORED
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="preview_tier",
        request=TierWanted,
        responses=TierPreviewed,
    )
    def post(self, request: Request, slug: str) -> Response:
        """Preview the effects of another tier on an organization. Nothing is saved."""
        self.require_superuser()
        tier = self.find_tier(self.body(TierWanted)["tier"])
        outlook = outlook_of_move(self.find_organization(slug), tier)
        [effect] = outlook.effects
        return Response(effect.change.as_dict() | {"preview_mark": outlook.mark})


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
        return Representation(tier_shape(self.find_tier(name)))

    def lock(self, name: str) -> None:
        LicenseTier.objects.select_for_update(no_key=True).get(pk=self.find_tier(name).pk)

    @extend_schema(operation_id="get_tier", responses=TierAnswer)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_licensetier")
        return self.resource_response(self.representation(name))

    @extend_schema(
        operation_id="change_tier",
        request=TierChange,
        responses=TierChanged,
    )
    @conditional(PlatformView.require_superuser)
    def patch(self, request: Request, name: str) -> Response:
        """Change a tier; it applies to every organization that has it from the next request on.
        What would disable, refuse or enable tools needs the mark of a preview."""
        tier = self.find_tier(name)
        wanted = self.body(TierChange)
        mark = wanted.pop("preview_mark", "")
        follows = change_terms(tier=tier, by=self.actor, mark=mark, **wanted)
        organizations = {slug: change.as_dict() for slug, change in follows.items()}
        return self.resource_response(
            self.representation(name), beside={"organizations": organizations}
        )


class TermsPreview(PlatformView):
    keying = Keying.IGNORED
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="preview_tier_terms",
        request=TierChange,
        responses=TermsPreviewed,
    )
    def post(self, request: Request, name: str) -> Response:
        """Preview the effects of other terms on the organizations of a tier. Nothing is saved."""
        self.require_superuser()
        tier, wanted = self.find_tier(name), self.body(TierChange)
        wanted.pop("preview_mark", None)
        outlook = outlook_of_terms(tier, terms_of(tier) | wanted)
        follows = {effect.place.slug: effect.change.as_dict() for effect in outlook.following}
        return Response(
            {"organizations": follows, "more": outlook.more, "preview_mark": outlook.mark}
        )
