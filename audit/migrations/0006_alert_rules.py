"""The alert rules of a new installation. From here on an administrator changes these rows."""

from typing import Any

from django.db import migrations, models

_MINUTES = 60
# Name, kind, severity, seconds, how many, values, the text of its alerts.
RULES: tuple[tuple[str, str, str, int, int, dict[str, Any], str], ...] = (
    ("refused_groups", "by_actor", "warning", 5 * _MINUTES, 3,
     {"reasons": ["group_not_granted"]}, "asked for groups it was not granted"),
    ("escalation", "every_group", "critical", 5 * _MINUTES, 1,
     {}, "asked for every group without being granted them"),
    ("dead_token", "by_actor", "warning", 5 * _MINUTES, 1,
     {"codes": ["TOKEN.REFUSED"]}, "used a token that is no longer good"),
    ("altered_definition", "by_subject", "critical", 5 * _MINUTES, 1,
     {"reasons": ["signature_invalid"]}, "has a definition that is not the one that was signed"),
    ("hasty_approval", "hasty_approval", "warning", 5 * _MINUTES, 1,
     {"seconds": 2}, "agreed to a call almost as soon as it was shown"),
    ("busy_approver", "by_actor", "warning", _MINUTES, 20,
     {"codes": ["CONFIRM.APPROVE"]}, "agreed to more calls in a minute than anybody reads"),
    ("outcome_unknown", "by_subject", "critical", 5 * _MINUTES, 1,
     {"reasons": ["OUTCOME_UNKNOWN"]}, "ended without anybody knowing whether it had its effect"),
    ("possible_effect", "possible_effect", "warning", 5 * _MINUTES, 1,
     {}, "did not succeed, and may have had its effect all the same"),
    ("unsealed", "by_subject", "critical", 5 * _MINUTES, 1,
     {"codes": ["AUDIT.UNSEALED"]}, "has records that were not sealed in time"),
    ("verification_failed", "by_subject", "critical", 15 * _MINUTES, 1,
     {"codes": ["AUDIT.VERIFY"], "outcomes": ["failure"]}, "has evidence that does not verify"),
    ("forged", "by_subject", "critical", 15 * _MINUTES, 1,
     {"codes": ["AUDIT.FORGED"]}, "has records that were not written by this installation"),
    ("halted", "by_subject", "critical", 15 * _MINUTES, 1,
     {"codes": ["AUDIT.HALTED"]}, "has a log that was halted: no tool starts until it is seen to"),
    ("first_use", "first_use", "info", 5 * _MINUTES, 1,
     {"history": 20}, "runs a tool for the first time"),
    ("unusual_usage", "unusual_usage", "warning", 60 * _MINUTES, 100,
     {"factor": 4}, "makes far more calls than usual"),
    ("unusual_group", "unusual_group", "info", 5 * _MINUTES, 1,
     {"history": 100}, "uses a group it has not used for 30 days"),
    ("unusual_step", "unusual_step", "info", 5 * _MINUTES, 1,
     {"history": 100}, "takes a step between states that was never taken before"),
    ("invalid_transitions", "by_actor", "warning", 5 * _MINUTES, 5,
     {"reasons": ["tool_not_in_state", "session_mismatch", "session_changed"]},
     "tried what its workflow's state does not allow"),
    ("password_guessing", "by_actor", "warning", 5 * _MINUTES, 1,
     {"codes": ["AUTH.LOGIN_FAILED"], "reasons": ["too_many_attempts"]},
     "could not log in: somebody tries passwords"),
    ("allowance", "by_subject", "warning", 5 * _MINUTES, 1,
     {"codes": ["BUDGET.ALERT"]}, "has used most of a budget or quota"),
)  # fmt: skip


def write(apps: Any, schema_editor: Any) -> None:
    rule = apps.get_model("audit", "AlertRule")
    rule.objects.bulk_create(
        rule(name=name, kind=kind, severity=severity, window_s=window_s, least=least,
             values=values, description=description)
        for name, kind, severity, window_s, least, values, description in RULES
    )  # fmt: skip


def remove(apps: Any, schema_editor: Any) -> None:
    names = [rule[0] for rule in RULES]
    apps.get_model("audit", "AlertRule").objects.filter(name__in=names).delete()


class Migration(migrations.Migration):
    dependencies = [("audit", "0005_only_added")]
    operations = [
        migrations.AddField(
            model_name="alertrule",
            name="looked_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="auditrecord",
            index=models.Index(
                condition=models.Q(("code", "TOOL.START")),
                fields=["organization", "actor", "subject", "occurred_at"],
                name="audit_starts",
            ),
        ),
        migrations.RunPython(write, remove),
    ]
