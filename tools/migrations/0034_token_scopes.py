"""The scope `manage` is split; it goes on meaning all of its parts."""

from django.db import migrations, models

SCOPES = ["read", "execute", "catalog", "agents", "audit", "organization", "manage"]


class Migration(migrations.Migration):
    dependencies = [("tools", "0033_idempotency_keys")]

    operations = [
        migrations.RemoveConstraint(model_name="token", name="token_scopes_are_known"),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.CheckConstraint(
                name="token_scopes_are_known",
                condition=models.Q(("scopes__contained_by", SCOPES)),
            ),
        ),
    ]
