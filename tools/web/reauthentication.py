"""Marks of views that need fresh proof of identity (reauthentication) in a browser session.

A view is marked where its action grants permissions, shows a secret, decides or destroys. The
middleware in `tools/ui/accounts/reauthentication.py` reads the mark. Changes through views without
a mark need proof.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from django.http import HttpRequest

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
View = TypeVar("View", bound=Callable[..., Any])


class Proof(Enum):
    ALWAYS = "always"  # also to read
    NEEDED = "needed"  # for every change
    NOT_NEEDED = "not needed"  # it revokes permissions, or grants none


# From the request and the arguments of its URL: whether it grants permissions.
GrantsPermissions = Callable[..., bool]
ProofMark = Proof | GrantsPermissions


def by_method(**marks: ProofMark) -> Mapping[str, ProofMark]:
    """`proof` of a view of the API: `by_method(post=Proof.NEEDED, delete=Proof.NOT_NEEDED)`."""
    return MappingProxyType({method.upper(): mark for method, mark in marks.items()})


def proof(mark: ProofMark) -> Callable[[View], View]:
    """Marks a page."""

    def marked(view: View) -> View:
        view.proof = mark  # type: ignore[attr-defined]
        return view

    return marked


def view_mark(view: Callable[..., Any], method: str) -> ProofMark | None:
    """The view's mark for a method; None where it has none."""
    given: Any = getattr(view, "view_initkwargs", {})
    made: Any = getattr(view, "cls", None) or getattr(view, "view_class", None) or view
    found = given.get("proof") or getattr(made, "proof", None)
    return found.get(method) if isinstance(found, Mapping) else found


def needs_proof(view: Callable[..., Any], request: HttpRequest, place: Mapping[str, Any]) -> bool:
    """Whether this request needs fresh proof."""
    method = request.method or ""
    mark = view_mark(view, method)
    if mark is Proof.ALWAYS:
        return True
    if method in SAFE_METHODS or mark is Proof.NOT_NEEDED:
        return False
    return mark in (None, Proof.NEEDED) or (callable(mark) and mark(request, **place))
