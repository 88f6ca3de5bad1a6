from django.urls import URLPattern, path

from tools.ui.audit import alert_views, export_views, proof_views, rule_views, views

urlpatterns: list[URLPattern] = [
    path("", views.record_list, name="audit"),
    path("records/<uuid:record_id>/", views.record_detail, name="audit-record"),
    path("records/<uuid:record_id>/verify/", proof_views.record_proof, name="audit-record-verify"),
    path("records/<uuid:record_id>/line", proof_views.record_line, name="audit-record-line"),
    path("toolcrib_verify.py", proof_views.verifier, name="audit-verifier"),
    path("checkpoints/", proof_views.checkpoint_list, name="audit-checkpoints"),
    path("checkpoints/<int:checkpoint_id>/note", proof_views.checkpoint_note, name="audit-note"),
    path("checkpoints/<int:checkpoint_id>/growth", proof_views.growth, name="audit-growth"),
    path("exports/", export_views.export_list, name="audit-exports"),
    path("exports/<uuid:export_id>/", export_views.export_file, name="audit-export-file"),
    path(
        "exports/<uuid:export_id>/remove/", export_views.export_remove, name="audit-export-remove"
    ),
    path("alerts/rules/", rule_views.rule_list, name="alert-rules"),
    path("alerts/rules/new/", rule_views.rule_new, name="alert-rule-new"),
    path("alerts/rules/<int:rule_id>/", rule_views.rule_edit, name="alert-rule"),
    path("alerts/", alert_views.alert_list, name="alerts"),
    path(
        "alerts/<uuid:alert_id>/acknowledge/",
        alert_views.alert_acknowledge,
        name="alert-acknowledge",
    ),
    path("alerts/channels/<uuid:channel_id>/test/", alert_views.channel_test, name="channel-test"),
]
