from importlib import import_module

from django.contrib.admin.apps import AdminConfig

# Each registers its models with the site when it is imported.
MODULES = (
    "agents", "approvals", "audit", "catalog", "organizations", "people", "read_only",
    "sandbox_profiles",
)  # fmt: skip


class ToolcribAdminConfig(AdminConfig):
    default_site = "tools.admin.site.ToolcribAdminSite"

    def ready(self) -> None:
        """Django's autodiscovery looks for modules named `admin`, which this package is itself; it
        is imported before the models are loaded."""
        super().ready()
        for module in MODULES:
            import_module(f"tools.admin.{module}")
