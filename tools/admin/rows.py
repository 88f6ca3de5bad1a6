"""Every row of the product, registered. Importing this module is what does it."""

from tools.admin import (
    agents,
    alerting,
    allowances,
    browsers,
    catalog,
    confirming,
    evidence,
    logs,
    messages,
    organizations,
    people,
    sandboxing,
    second_factors,
    sources,
)

__all__ = [
    "agents",
    "alerting",
    "allowances",
    "browsers",
    "catalog",
    "confirming",
    "evidence",
    "logs",
    "messages",
    "organizations",
    "people",
    "sandboxing",
    "second_factors",
    "sources",
]
