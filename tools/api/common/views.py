"""Base classes of all API views."""

from functools import cache
from typing import Any, TypeVar

from rest_framework.request import Request
from rest_framework.serializers import Serializer

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.api.common.idempotency import KeyedView
from tools.authorization import pins
from tools.authorization.facts import check_groups
from tools.catalog.registry import registry
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller
from tools.errors import Malformed, Refused
from tools.execution import sessions
from tools.models import Organization
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest

Body = TypeVar("Body", bound=Serializer[Any])


@cache
def _cached_serializer(kind: type[Serializer[Any]]) -> Serializer[Any]:
    """Cached: building a serializer copies all its fields, and validating does not change it."""
    return kind()


class CallerView(KeyedView):
    """A view that knows its caller. The permission class has made sure that there is one."""

    request: Request
    # Maximum of values in a body. Views for inputs of tools, or documents, allow as many as JSON
    # may have.
    most_values = 20_000
    bodiless = frozenset({"DELETE"})  # methods to which a body has no meaning

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method in self.bodiless and request.body.strip() not in {b"", b"{}"}:
            raise Malformed("A body means nothing here; send none.")

    @property
    def caller(self) -> Caller:
        caller = self.request.auth
        assert isinstance(caller, Caller)
        return caller

    @property
    def actor(self) -> Actor:
        return actor_of(self.caller)

    @property
    def organization(self) -> Organization:
        return Organization.objects.select_related("tier").get(pk=self.caller.organization_id)

    @property
    def snapshot(self) -> Snapshot:
        return pins.snapshot_for(self.caller, self.request.query_params.get("session"))

    def current_snapshot(self) -> Snapshot:
        """The catalog with what this very request has changed."""
        if self.uncommitted:
            return registry.as_it_stands(self.caller.organization_id)
        return registry.snapshot(self.caller.organization_id, self.organization.revision)

    def check_requested_groups(self, asked: EffectiveRequest, snapshot: Snapshot) -> list[str]:
        """Warnings about the groups asked for; groups beyond the grants refuse the whole request,
        which is counted and audited."""
        try:
            return check_groups(self.caller, asked, snapshot)
        except Refused as refusal:
            record(
                Event.LIST_DENY,
                by=self.actor,
                outcome=Outcome.DENIED,
                reason=refusal.code,
                details={
                    "requested_groups": sorted(asked.groups),
                    "granted_groups": sorted(self.caller.granted_groups),
                },
            )
            raise

    def require(
        self, permission: str, *, tool: str | None = None, group: str | None = None
    ) -> None:
        """With the row's name where a narrowed token may change it (`narrowable`)."""
        require(self.caller, permission, tool=tool, group=group)

    def body(self, kind: type[Body], *, optional: bool = False) -> dict[str, Any]:
        """The request's body, validated. Raises DRF's ValidationError with every wrong field, and
        `Malformed` for none at all, which a client that lost it would send too."""
        return dict(_cached_serializer(kind).run_validation(self.json_body(optional=optional)))

    def json_body(self, *, optional: bool = False) -> dict[str, Any]:
        """The body as an object that an action will read. Raises `Malformed` for anything else."""
        data = self.request.data
        if not optional and not self.request.body:
            raise Malformed("A body is needed here: a JSON object.", code="body_needed")
        if not isinstance(data, dict):
            raise Malformed("The body must be a JSON object.")
        return data

    def requested_state(self) -> str | None:
        """None is absent; the empty text is the state `undefined`."""
        state = self.request.query_params.get("state")
        return DEFAULT_STATE if state == "" else state

    def effective_request(self) -> EffectiveRequest:
        """`group` absent is absent; `group=` is the empty list. In a session the server's count."""
        query = self.request.query_params
        groups = [name for name in query.getlist("group") if name] if "group" in query else None
        state = self.requested_state()
        if "session" in query:
            return sessions.session_request(self.caller, query["session"], groups, state)
        return EffectiveRequest.from_options(groups, state)
