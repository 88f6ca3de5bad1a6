"""`/api/v1/cache`: invalidates cached results."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.base import CallerView
from tools.api.common.fields import Strict, Text
from tools.definitions.callers import Scope
from tools.execution import cache
from tools.web.reauthentication import Proof, by_method


class InvalidationBody(Strict):
    """Neither of the two is the whole organization."""

    tool = Text(required=False, max_length=128)
    group = Text(required=False, max_length=100)


class InvalidationAnswer(serializers.Serializer[Any]):
    forgotten = serializers.IntegerField()


class CacheInvalidation(CallerView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="invalidate_cache",
        request=InvalidationBody,
        responses=InvalidationAnswer,
    )
    def post(self, request: Request) -> Response:
        """Forget the results of a tool, of a group's tools, or of the organization."""
        self.require("change_tool")
        wanted = self.body(InvalidationBody)
        count = cache.invalidate(organization=self.organization, by=self.actor, **wanted)
        return Response({"forgotten": count})
