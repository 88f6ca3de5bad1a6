"""Amounts of money and moments, as texts of the API."""

from decimal import Decimal
from typing import Any


def money(amount: Decimal) -> str:
    """Exact, without needless zeros."""
    return f"{amount.normalize():f}"


def moment(at: Any) -> str | None:
    """RFC 3339 in UTC."""
    return at.isoformat().replace("+00:00", "Z") if at else None
