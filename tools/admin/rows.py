"""Every row of the product, registered. Importing this module is what does it."""

from tools.admin import agents, catalog, evidence, organizations, people, sandboxing

__all__ = ["agents", "catalog", "evidence", "organizations", "people", "sandboxing"]
