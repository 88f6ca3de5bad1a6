"""Conditional requests (RFC 9110, section 13): an `ETag` on every resource that can be changed, and
`If-Match` on its change.

A tag covers what a change can write, secrets among it, and no counter, health or time of use. What
a response shows of other resources' settings is in the tag after a dot: it affects `If-None-Match`
and not `If-Match`. The tag is a keyed hash, so it reveals nothing of a secret. The comparison and
the change are one transaction that locks the row, so of two writers with the same tag one succeeds.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from django.db import transaction
from django.utils.crypto import salted_hmac
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.views import CallerView
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.errors import ChangedMeanwhile, Malformed
from tools.models import Organization

ANY = "*"
CHANGING = frozenset({"PUT", "PATCH", "DELETE"})
_SALT = "tools.api.conditional.etag"
_ENTITY_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAG = re.compile(_ENTITY_TAG)
_TAG_LIST = re.compile(rf"[ \t,]*{_ENTITY_TAG}(?:[ \t]*,[ \t,]*{_ENTITY_TAG})*[ \t,]*")

Handler = Callable[..., Response]
Admission = Callable[[Any], None]


@dataclass(frozen=True)
class Representation:
    """The response for a resource, and its encrypted secrets, which are not shown."""

    shape: dict[str, Any]
    sealed: tuple[Any, ...] = ()


class ConditionalView(CallerView):
    """A view of one resource that can be changed."""

    volatile: frozenset[str] = frozenset()  # fields of the answer that no change of it writes
    answers_resource = True  # or an action on it answers something else
    derived: frozenset[str] = frozenset()  # fields that follow from other things' settings

    def representation(self, *args: Any, **kwargs: Any) -> Representation | None:
        """The resource at the URL, as the open transaction sees it; None where a PUT creates it.

        Raises `NotFound`.
        """
        raise NotImplementedError

    _changing = False

    def current_snapshot(self) -> Snapshot:
        """The changed catalog while a change is open. It is not cached, since the change may be
        rolled back."""
        if not self._changing:
            return super().current_snapshot()
        return registry.as_it_stands(self.caller.organization_id)

    @property
    def has_representation(self) -> bool:
        return type(self).representation is not ConditionalView.representation

    def takes_if_match(self, method: str) -> bool:
        handler = getattr(self, method.lower(), None)
        return self.has_representation and (
            method in CHANGING or getattr(handler, "conditional", False)
        )

    def lock(self, *args: Any, **kwargs: Any) -> None:
        """Lock what every change of the resource locks: its organization's row, as
        `Organization.objects.next_revision` does."""
        row = Organization.objects.select_for_update(no_key=True)
        row.values_list("pk").get(pk=self.caller.organization_id)

    def covered_fields(self, shape: dict[str, Any]) -> dict[str, Any]:
        """The part of an answer that the tag covers."""
        return {field: value for field, value in shape.items() if field not in self.volatile}

    def entity_tag(self, now: Representation) -> str:
        """A strong entity tag, with its quotes."""
        covered = self.covered_fields(now.shape)
        derived = {field: covered.pop(field) for field in self.derived if field in covered}
        written = _digest([covered, [_encode_value(one) for one in now.sealed]])
        return f'"{written[:40]}.{_digest(derived)[:8]}"' if derived else f'"{written[:40]}"'

    def resource_response(
        self,
        now: Representation | None,
        http_status: int = status.HTTP_200_OK,
        headers: dict[str, str] | None = None,
        beside: dict[str, Any] | None = None,
    ) -> Response:
        """The resource with its tag, and further fields `beside` it. A GET of what the client has
        already is 304; only where the tag covers the whole answer."""
        assert now is not None
        headers = {**(headers or {}), "ETag": self.entity_tag(now)}
        if self.request.method in {"GET", "HEAD"} and self.covered_fields(now.shape) == now.shape:
            known = _parse_entity_tags(self.request, "If-None-Match")
            if known == ANY or headers["ETag"] in [tag.removeprefix("W/") for tag in known or ()]:
                return Response(status=status.HTTP_304_NOT_MODIFIED, headers=headers)
        return Response(now.shape | (beside or {}), http_status, headers=headers)

    @contextmanager
    def open_change(self, **address: Any) -> Iterator[None]:
        """One transaction that locks the resource and has compared its tag.

        Raises `ChangedMeanwhile`, and `Malformed` for a header that cannot be read.
        """
        with transaction.atomic():
            self.lock(**address)
            self.check_preconditions(**address)
            self._changing = True
            yield
        self._changing = False

    def check_preconditions(self, **address: Any) -> None:
        """Compares the tag with the request's. For a handler that calls other servers, and cannot
        hold a lock meanwhile. Raises what `open_change` raises."""
        wanted, unwanted = (
            _parse_entity_tags(self.request, name) for name in ("If-Match", "If-None-Match")
        )
        if wanted is not None or unwanted is not None:
            now = self.representation(**address)
            self._check_tag(None if now is None else self.entity_tag(now), wanted, unwanted)

    def _check_tag(
        self, tag: str | None, wanted: str | list[str] | None, unwanted: str | list[str] | None
    ) -> None:
        if wanted is not None and (tag is None or not _matches_tag(wanted, tag)):
            raise ChangedMeanwhile(
                "It is not what If-Match names any more. Read it again and repeat the change."
            )
        if tag is not None and unwanted is not None:
            known = unwanted == ANY or tag in [one.removeprefix("W/") for one in unwanted]
            if known:
                raise ChangedMeanwhile("It is there, and If-None-Match says that it must not be.")


def conditional[H: Handler](
    admission: str | Admission, *, row: str = "", held: bool = True
) -> Callable[[H], H]:
    """A handler that changes one resource: permissions are checked first, then the tag is compared.

    `row` is `tool` or `group` where narrowed tokens may manage those of their own by name. A
    handler that calls other servers holds no lock meanwhile (`held`), and changes nothing that the
    tag covers.
    """

    def decorate(handler: H) -> H:
        @wraps(handler)
        def change(view: ConditionalView, request: Request, **address: Any) -> Response:
            if isinstance(admission, str):
                view.require(admission, **({row: address["name"]} if row else {}))
            else:
                admission(view)
            if not held:
                view.check_preconditions(**address)
                return handler(view, request, **address)
            with view.open_change(**address):
                return handler(view, request, **address)

        change.conditional = True  # type: ignore[attr-defined] # read by the document
        return cast(H, change)

    return decorate


def _parse_entity_tags(request: Request, header: str) -> str | list[str] | None:
    """`*`, or the entity tags of the header; None without one. Raises `Malformed`."""
    given = request.headers.get(header)
    if given is None:
        return None
    given = given.strip(" \t")
    if given == ANY:
        return ANY
    if not _TAG_LIST.fullmatch(given):
        raise Malformed(f'{header} must be * or entity tags as ETag has them, such as "5f3a".')
    return _TAG.findall(given)


def _matches_tag(wanted: str | list[str], tag: str) -> bool:
    """Whether `If-Match` matches the resource, by the part that a change can write. A weak tag
    never matches."""
    written = [one.strip('"').partition(".")[0] for one in (tag, *wanted)]
    return wanted == ANY or written[0] in written[1:]


def _digest(said: Any) -> str:
    text = json.dumps(said, sort_keys=True, default=str)
    return salted_hmac(_SALT, text, algorithm="sha256").hexdigest()


def _encode_value(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else value
