"""URL patterns of the product, and its error handlers."""

from django.urls import include, path

urlpatterns = [path("", include("tools.urls"))]
handler400 = "config.http.errors.bad_request"
handler403 = "config.http.errors.forbidden"
handler404 = "config.http.errors.not_found"
handler500 = "config.http.errors.server_error"
