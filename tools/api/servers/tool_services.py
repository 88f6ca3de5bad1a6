"""`/api/v1/tool-services`: tool services behind a queue, and approval of those that announce
themselves."""

from typing import Any

import redis
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from toolcrib_service.queue_protocol import Queue
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import Page
from tools.api.common.serializer_fields import Strict, Text
from tools.catalog.services import announcements, services
from tools.definitions.callers import Scope
from tools.errors import Unavailable
from tools.models import ServiceStatus, ToolService
from tools.runners.service import default_client
from tools.shapes.catalog import service_shape
from tools.web.cursor_pagination import CursorPages, by_name, paging_parameters
from tools.web.reauthentication import Proof, by_method


class ParameterOfService(serializers.Serializer[Any]):
    name = serializers.CharField()
    required = serializers.BooleanField(required=False)  # type: ignore[assignment]


class ServiceChange(serializers.Serializer[Any]):
    """Read by the action, which names every wrong field; kebab-case is understood as well."""

    request_queue = serializers.CharField(required=False)
    response_queue = serializers.CharField(required=False)
    config_params = ParameterOfService(many=True, required=False)
    default_groups = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True
    )


class ServiceBody(ServiceChange):
    id = serializers.CharField()
    request_queue = serializers.CharField()
    response_queue = serializers.CharField()


class ServiceAnswer(serializers.Serializer[Any]):
    id = serializers.CharField()
    request_queue = serializers.CharField()
    response_queue = serializers.CharField()
    config_params = ParameterOfService(many=True)
    default_groups = serializers.ListField(child=serializers.CharField(), allow_null=True)
    status = serializers.CharField(help_text=f"One of {', '.join(ServiceStatus.values)}.")
    announced = serializers.DictField(
        allow_null=True, help_text="What it said of itself last, to be read before it is approved."
    )
    announced_digest = serializers.CharField(allow_null=True)
    digest = serializers.CharField(allow_null=True, help_text="Of what was approved and holds.")
    key = serializers.CharField(allow_null=True)
    closed_because = serializers.CharField(
        allow_null=True, help_text="Why its tools are refused with `service_unavailable`."
    )
    lease_until = serializers.DateTimeField(allow_null=True)
    last_seen = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class ServicePage(Page):
    results = ServiceAnswer(many=True)


class ServiceStateAnswer(serializers.Serializer[Any]):
    alive = serializers.BooleanField()
    processes = serializers.IntegerField(help_text="That take requests.")
    lease_s = serializers.FloatField(help_text="How much longer one is believed to.")
    waiting = serializers.IntegerField(help_text="Requests that nobody has taken.")


class ServiceDecisionBody(Strict):
    digest = Text(max_length=80, help_text="Of the announcement that was read.")
    reason = Text(required=False, default="", max_length=500, allow_blank=True)
    reconsider = serializers.BooleanField(
        default=False, help_text="Approve it though somebody has rejected it."
    )


CHANGED = {200: ServiceAnswer}


class ServiceView(ConditionalView):
    scope = Scope.CATALOG
    volatile = frozenset({"lease_until", "last_seen", "closed_because"})

    def representation(self, name: str) -> Representation:
        return Representation(service_shape(self.find_service(name)))

    def find_service(self, name: str) -> ToolService:
        return services.find_service(self.organization, name)


class ServiceList(ServiceView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_tool_services",
        parameters=paging_parameters(by_name()),
        responses=ServicePage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_toolservice")
        rows = ToolService.objects.filter(organization_id=self.caller.organization_id)
        pages = CursorPages(by_name())
        page: list[ToolService] = pages.paginate_queryset(rows, request, self) or []
        return pages.get_paginated_response([service_shape(row) for row in page])

    @extend_schema(
        operation_id="create_tool_service",
        request=ServiceBody,
        responses={201: ServiceAnswer},
    )
    def post(self, request: Request) -> Response:
        """A descriptor of specification S2. Its tools can be registered from then on."""
        self.require("add_toolservice")
        row = services.create_service(
            organization=self.organization, service=self.json_body(), by=self.actor
        )
        headers = {"Location": f"/api/v1/tool-services/{row.name}"}
        return self.resource_response(
            self.representation(row.name), status.HTTP_201_CREATED, headers
        )


class ServiceDetail(ServiceView):
    proof = by_method(patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_tool_service", responses=CHANGED)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_toolservice")
        return self.resource_response(self.representation(name))

    @extend_schema(operation_id="change_tool_service", request=ServiceChange, responses=CHANGED)
    @conditional("change_toolservice")
    def patch(self, request: Request, name: str) -> Response:
        """Refused with the tools that would no longer fit."""
        services.change_service(
            row=self.find_service(name), changes=self.json_body(), by=self.actor
        )
        return self.resource_response(self.representation(name))

    @extend_schema(
        operation_id="delete_tool_service",
        responses={204: None},
    )
    @conditional("delete_toolservice")
    def delete(self, request: Request, name: str) -> Response:
        """Refused while tools name it."""
        services.delete_service(row=self.find_service(name), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ServiceState(ServiceView):
    @extend_schema(
        operation_id="get_tool_service_state",
        responses=ServiceStateAnswer,
    )
    def get(self, request: Request, name: str) -> Response:
        """Whether the service has workers, as the broker knows now."""
        self.require("view_toolservice")
        row = self.find_service(name)
        try:
            life = default_client().queue_status(Queue(self.caller.organization, row.request_queue))
        except redis.RedisError:
            raise Unavailable("The broker of tool services does not answer.") from None
        return Response(
            {
                "alive": life.processes > 0,
                "processes": life.processes,
                "lease_s": round(max(0.0, life.lease_s), 3),
                "waiting": life.waiting,
            }
        )


class ServiceDecide(ServiceView):
    proof = by_method(post=Proof.NEEDED)
    approve = True

    @extend_schema(request=ServiceDecisionBody, responses=CHANGED)
    @conditional("change_toolservice")
    def post(self, request: Request, name: str) -> Response:
        """The digest identifies what was read; a later announcement is a conflict."""
        row = self.find_service(name)
        wanted = self.body(ServiceDecisionBody)
        if self.approve:
            announcements.approve_service(
                row=row, digest=wanted["digest"], by=self.actor, reconsider=wanted["reconsider"]
            )
        else:
            announcements.reject_service(
                row=row, digest=wanted["digest"], by=self.actor, reason=wanted["reason"]
            )
        return self.resource_response(self.representation(name))
