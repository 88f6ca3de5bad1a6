from importlib import import_module

from django.contrib.admin.apps import AdminConfig


class ToolcribAdminConfig(AdminConfig):
    default_site = "tools.admin.site.ToolcribAdminSite"

    def ready(self) -> None:
        """Django's autodiscovery finds this package, which cannot register itself: it is imported
        before the models are loaded."""
        super().ready()
        import_module("tools.admin.rows")
