"""Every address of the product."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

from config import probes, reports
from tools.api.openapi import OpenApiDocument

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", probes.healthz),
    path("readyz", probes.readyz, name="readyz"),
    path("metrics", probes.metrics),
    path("csp-report", reports.csp_report),
    path("api/schema/", OpenApiDocument.as_view(), name="api-schema"),
    path(
        "api/docs/",
        SpectacularSwaggerSplitView.as_view(
            url_name="api-schema", http_method_names=["get", "head"]
        ),
        name="api-docs",
    ),
    path("api/v1/", include("tools.api.urls")),
    path("admin/", admin.site.urls),
    path("audit/", include("audit.urls")),
    path("", include("tools.ui.urls")),
]
handler400 = "config.errors.bad_request"
handler403 = "config.errors.forbidden"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"
