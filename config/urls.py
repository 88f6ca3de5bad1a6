"""The addresses of the product, and what answers where no view does."""

from django.urls import include, path

urlpatterns = [path("", include("tools.urls"))]
handler400 = "config.http.errors.bad_request"
handler403 = "config.http.errors.forbidden"
handler404 = "config.http.errors.not_found"
handler500 = "config.http.errors.server_error"
