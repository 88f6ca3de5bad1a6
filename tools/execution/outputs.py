"""Where an output lies: in its execution's row, or, where it is large, outside of it by its digest.

It is written once, in the transaction of its end, and read by whoever may read the execution.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings

from tools.definitions.results import Status
from tools.errors import Conflict, Gone, NotFound
from tools.models import StoredOutput

JSON, TEXT = "application/json", "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Parcel:
    """An output as it is put away. `content` is empty where it lies in the row, or lay already."""

    output: Any
    size: int | None  # bytes, as JSON; None where there is none
    digest: str = ""
    type: str = ""
    content: bytes = b""


NOTHING = Parcel(None, None)


class HasOutput(Protocol):
    """An execution, or as much of one as says where its output lies."""

    @property
    def organization_id(self) -> UUID: ...
    @property
    def status(self) -> str: ...
    @property
    def is_final(self) -> bool: ...
    @property
    def output(self) -> Any: ...
    @property
    def output_digest(self) -> str: ...
    @property
    def output_type(self) -> str: ...
    @property
    def output_expired_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class Content:
    """An output as it is streamed: a text as it is, anything else as JSON."""

    organization: UUID
    digest: str
    type: str
    size: int
    inline: bytes | None

    def piece(self, start: int, length: int) -> bytes:
        """Raises `Gone` where its time ran out while it was read."""
        if self.inline is not None:
            return self.inline[start : start + length]
        found = StoredOutput.objects.piece(self.organization, self.digest, start, length)
        if found is None:
            raise Gone("The output has expired.", code="output_expired")
        return found


def packed(output: Any) -> Parcel:
    as_json = json.dumps(output, ensure_ascii=False).encode()
    if len(as_json) <= settings.OUTPUT_INLINE_BYTES:
        return Parcel(output, len(as_json))
    kind, content = _written(output, as_json)
    return Parcel(None, len(as_json), _digest(content), kind, content)


def size_of(value: Any) -> int:
    """Bytes of it as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def put_away(organization: UUID, parcel: Parcel) -> None:
    """In the transaction of the end that names it."""
    if parcel.content:
        StoredOutput.objects.keep(organization, parcel.digest, parcel.content)


def whole(execution: HasOutput) -> Any:
    """The output wherever it lies. Raises `Gone`."""
    if execution.output_expired_at is not None:
        raise expired(execution)
    if not execution.output_digest:
        return execution.output
    found = content_of(execution)
    content = found.piece(0, found.size)
    return content.decode() if found.type == TEXT else json.loads(content)


def content_of(execution: HasOutput) -> Content:
    """Raises `Conflict` while the call is not over, `NotFound` where it gave nothing, `Gone`."""
    _check_there(execution)
    place = execution.organization_id
    if not execution.output_digest:
        as_json = json.dumps(execution.output, ensure_ascii=False).encode()
        kind, content = _written(execution.output, as_json)
        return Content(place, _digest(content), kind, len(content), content)
    rows = StoredOutput.objects.filter(organization=place, digest=execution.output_digest)
    size = rows.values_list("size", flat=True).first()
    if size is None:  # between our reading of the two
        raise expired(execution)
    return Content(place, execution.output_digest, execution.output_type, size, None)


def expired(execution: HasOutput) -> Gone:
    at = execution.output_expired_at
    return Gone(
        "The output has expired: its organization keeps none for longer. Call the tool again.",
        code="output_expired",
        **({"expired_at": at.isoformat().replace("+00:00", "Z")} if at else {}),
    )


def _check_there(execution: HasOutput) -> None:
    if not execution.is_final:
        raise Conflict("The execution is not over yet.", code="execution_not_over")
    if execution.output_expired_at is not None:
        raise expired(execution)
    if execution.status != Status.SUCCESS:
        raise NotFound(
            "The execution did not succeed and has no output; error_code says why.",
            code="output_not_found",
        )


def _written(output: Any, as_json: bytes) -> tuple[str, bytes]:
    return (TEXT, output.encode()) if isinstance(output, str) else (JSON, as_json)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
