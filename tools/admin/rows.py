"""Every row of the product, registered. Importing this module is what does it."""

from tools.admin import (
    agents,
    alerting,
    allowances,
    catalog,
    evidence,
    messages,
    organizations,
    people,
    sandboxing,
)

__all__ = [
    "agents",
    "alerting",
    "allowances",
    "catalog",
    "evidence",
    "messages",
    "organizations",
    "people",
    "sandboxing",
]
