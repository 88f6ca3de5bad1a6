"""The root URL configuration."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

from tools.api.documentation import OpenApiDocument
from tools.web import csp_reports, probes

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", probes.healthz),
    path("readyz", probes.readyz, name="readyz"),
    path("metrics", probes.metrics),
    path("csp-report", csp_reports.csp_report),
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
    path("audit/", include("tools.ui.audit.urls")),
    path("", include("tools.ui.urls")),
]
