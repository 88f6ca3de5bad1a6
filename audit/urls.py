from django.urls import URLPattern, path

from audit import alert_views, views

urlpatterns: list[URLPattern] = [
    path("", views.record_list, name="audit"),
    path("records/<uuid:record_id>/", views.record_detail, name="audit-record"),
    path("alerts/", alert_views.alert_list, name="alerts"),
    path(
        "alerts/<uuid:alert_id>/acknowledge/",
        alert_views.alert_acknowledge,
        name="alert-acknowledge",
    ),
    path("alerts/channels/<uuid:channel_id>/test/", alert_views.channel_test, name="channel-test"),
]
