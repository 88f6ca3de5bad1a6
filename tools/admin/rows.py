"""Every row of the product, registered. Importing this module is what does it."""

from tools.admin import agents, allowances, catalog, evidence, organizations, people, sandboxing

__all__ = ["agents", "allowances", "catalog", "evidence", "organizations", "people", "sandboxing"]
