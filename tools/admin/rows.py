"""Every row of the product, registered. Importing this module is what does it."""

from tools.admin import agents, catalog, evidence, organizations, people

__all__ = ["agents", "catalog", "evidence", "organizations", "people"]
