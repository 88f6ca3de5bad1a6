"""What an agent may use in a day or a month."""

from decimal import Decimal
from uuid import UUID

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller


def reserve(
    execution_id: UUID, *, caller: Caller, tool: CatalogTool, snapshot: Snapshot, cost: Decimal
) -> None: ...


def settle(execution_id: UUID, *, spent: Decimal) -> None: ...


def release(execution_id: UUID) -> None: ...
