from django.urls import URLPattern, path

from audit import views

urlpatterns: list[URLPattern] = [
    path("", views.record_list, name="audit"),
    path("alerts/", views.alert_list, name="alerts"),
    path("alerts/<uuid:alert_id>/acknowledge/", views.alert_acknowledge, name="alert-acknowledge"),
]
