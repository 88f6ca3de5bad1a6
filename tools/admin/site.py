from django.contrib.admin import AdminSite


class ToolcribAdminSite(AdminSite):
    site_header = "Toolcrib"
    site_title = "Toolcrib"
    index_title = "Rows"
    site_url = "/"
