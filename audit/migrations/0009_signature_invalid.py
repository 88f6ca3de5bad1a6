"""The reason of a call whose tool is not what was signed has the name of its error code."""

from typing import Any

from django.db import migrations

_NAME, _OLD, _NEW = "altered_definition", "signature_invalid", "SIGNATURE_INVALID"


def match_both(apps: Any, schema_editor: Any) -> None:
    for rule in apps.get_model("audit", "AlertRule").objects.filter(name=_NAME):
        reasons = rule.values.get("reasons") or []
        if _OLD in reasons and _NEW not in reasons:
            rule.values = rule.values | {"reasons": [*reasons, _NEW]}
            rule.save(update_fields=["values"])


def match_one(apps: Any, schema_editor: Any) -> None:
    for rule in apps.get_model("audit", "AlertRule").objects.filter(name=_NAME):
        reasons = [one for one in rule.values.get("reasons") or [] if one != _NEW]
        rule.values = rule.values | {"reasons": reasons}
        rule.save(update_fields=["values"])


class Migration(migrations.Migration):
    dependencies = [("audit", "0008_always")]
    operations = [migrations.RunPython(match_both, match_one)]
