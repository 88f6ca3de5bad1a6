"""Registers every model of the product with the Django admin when it is imported."""

from tools.admin import alerting, catalog, confirming, evidence, logs, messages, sandboxing, sources
from tools.admin.accounts import agents, allowances, browsers, organizations, people, second_factors

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
