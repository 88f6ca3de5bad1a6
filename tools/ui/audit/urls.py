from django.urls import URLPattern, path

from tools.ui.audit import alert_rules, alerts, audit_exports, audit_proofs, audit_records

urlpatterns: list[URLPattern] = [
    path("", audit_records.record_list, name="audit"),
    path("records/<uuid:record_id>/", audit_records.record_detail, name="audit-record"),
    path("records/<uuid:record_id>/verify/", audit_proofs.record_proof, name="audit-record-verify"),
    path("records/<uuid:record_id>/line", audit_proofs.record_line, name="audit-record-line"),
    path("toolcrib_verify.py", audit_proofs.verifier, name="audit-verifier"),
    path("checkpoints/", audit_proofs.checkpoint_list, name="audit-checkpoints"),
    path("checkpoints/<int:checkpoint_id>/note", audit_proofs.checkpoint_note, name="audit-note"),
    path(
        "checkpoints/<int:checkpoint_id>/growth",
        audit_proofs.consistency_proof,
        name="audit-growth",
    ),
    path("exports/", audit_exports.export_list, name="audit-exports"),
    path("exports/<uuid:export_id>/", audit_exports.export_file, name="audit-export-file"),
    path(
        "exports/<uuid:export_id>/remove/", audit_exports.export_remove, name="audit-export-remove"
    ),
    path("alerts/rules/", alert_rules.rule_list, name="alert-rules"),
    path("alerts/rules/new/", alert_rules.rule_new, name="alert-rule-new"),
    path("alerts/rules/<int:rule_id>/", alert_rules.rule_edit, name="alert-rule"),
    path("alerts/rule-names/", alerts.search_rules, name="known-rules"),
    path("alerts/", alerts.alert_list, name="alerts"),
    path(
        "alerts/<uuid:alert_id>/acknowledge/",
        alerts.alert_acknowledge,
        name="alert-acknowledge",
    ),
    path("alerts/channels/<uuid:channel_id>/test/", alerts.channel_test, name="channel-test"),
]
