from django.contrib.admin.apps import AdminConfig


class ToolcribAdminConfig(AdminConfig):
    default_site = "tools.admin.site.ToolcribAdminSite"
