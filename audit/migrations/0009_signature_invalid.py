"""A call of a tool that was altered ends with SIGNATURE_INVALID: the rule knows that too."""

from typing import Any

from django.db import migrations

NOW = "SIGNATURE_INVALID"


def follow(apps: Any, schema_editor: Any) -> None:
    for rule in apps.get_model("audit", "AlertRule").objects.all():
        reasons = rule.values.get("reasons") or []
        if "signature_invalid" in reasons and NOW not in reasons:
            rule.values = rule.values | {"reasons": [*reasons, NOW]}
            rule.save(update_fields=["values"])


class Migration(migrations.Migration):
    dependencies = [("audit", "0008_always")]
    operations = [migrations.RunPython(follow, migrations.RunPython.noop)]
