"""`/api/v1/organizations/{slug}/signing-keys`: public keys; the private ones are never shown."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.bodies import ErrorAnswer
from tools.api.fields import Strict, Text
from tools.api.organizations import PlatformView
from tools.catalog import trust
from tools.models import SigningKey
from tools.shapes import moment


class SigningKeyReason(Strict):
    reason = Text(max_length=200, required=False, default="")


class SigningKeyRotation(SigningKeyReason):
    resign = serializers.BooleanField(
        default=True, help_text="Sign what is good now with the new key too."
    )


class SigningKeyAnswer(serializers.Serializer[Any]):
    key_id = serializers.CharField()
    public_key = serializers.CharField(help_text="Ed25519, base64.")
    created_at = serializers.DateTimeField()
    retired_at = serializers.DateTimeField(allow_null=True)
    distrusted_at = serializers.DateTimeField(allow_null=True)


class SigningKeyPage(serializers.Serializer[Any]):
    results = SigningKeyAnswer(many=True)
    next = serializers.CharField(allow_null=True)
    previous = serializers.CharField(allow_null=True)


class SigningKeyList(PlatformView):
    @extend_schema(
        operation_id="list_signing_keys", responses={200: SigningKeyPage, 404: ErrorAnswer}
    )
    def get(self, request: Request, slug: str) -> Response:
        """The newest first, at most 200."""
        self.require_superuser()
        rows = SigningKey.objects.filter(organization=self.row(slug))[:200]
        return Response({"results": [_shape(row) for row in rows], "next": None, "previous": None})

    @extend_schema(
        operation_id="rotate_signing_key",
        request=SigningKeyRotation,
        responses={201: SigningKeyAnswer, 404: ErrorAnswer},
    )
    def post(self, request: Request, slug: str) -> Response:
        """A new key signs from now on. What the one before signed stays valid."""
        self.require_superuser()
        wanted = self.body(SigningKeyRotation)
        row = trust.rotate_signing_key(organization=self.row(slug), by=self.actor, **wanted)
        return Response(_shape(row), status.HTTP_201_CREATED)


class SigningKeyDistrust(PlatformView):
    @extend_schema(
        operation_id="distrust_signing_key",
        request=SigningKeyReason,
        responses={200: SigningKeyAnswer, 404: ErrorAnswer},
    )
    def post(self, request: Request, slug: str, key_id: str) -> Response:
        """What this key alone signed runs no more until it is signed anew."""
        self.require_superuser()
        wanted = self.body(SigningKeyReason)
        row = trust.distrust_signing_key(
            organization=self.row(slug), key_id=key_id, by=self.actor, **wanted
        )
        return Response(_shape(row))


def _shape(row: SigningKey) -> dict[str, Any]:
    return {
        "key_id": row.key_id,
        "public_key": row.public_key,
        "created_at": moment(row.created_at),
        "retired_at": moment(row.retired_at) if row.retired_at else None,
        "distrusted_at": moment(row.distrusted_at) if row.distrusted_at else None,
    }
