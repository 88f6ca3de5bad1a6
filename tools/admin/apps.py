from importlib import import_module

from django.contrib.admin.apps import AdminConfig


class ToolcribAdminConfig(AdminConfig):
    default_site = "tools.admin.site.ToolcribAdminSite"

    def ready(self) -> None:
        """Django looks for modules called admin and finds this package, which cannot register
        itself: it is imported before there are models."""
        super().ready()
        import_module("tools.admin.rows")
