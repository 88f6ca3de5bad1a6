"""Ids in the place of user names, and names that are never given again. The rows: 0035."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

REMEMBER = """
CREATE FUNCTION tools_remember_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tools_usedname (name, user_id) VALUES (NEW.username, NEW.id)
    ON CONFLICT (name) DO NOTHING;
    PERFORM 1 FROM tools_usedname WHERE name = NEW.username AND user_id = NEW.id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the user name was given before' USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tools_user_name_once AFTER INSERT OR UPDATE OF username ON tools_user
    FOR EACH ROW EXECUTE FUNCTION tools_remember_name();
"""
FORGET = """
DROP TRIGGER tools_user_name_once ON tools_user;
DROP FUNCTION tools_remember_name();
"""
OWNER = "`agent:id` or `user:id`; empty for everybody."


class Migration(migrations.Migration):
    dependencies = [("tools", "0034_token_scopes")]

    operations = [
        migrations.CreateModel(
            name="UsedName",
            fields=[
                ("name", models.CharField(max_length=150, primary_key=True, serialize=False)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="used_names",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="token",
            name="issuer",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            model_name="mcpcredential",
            name="owner",
            field=models.CharField(help_text="`agent:id` or `user:id`.", max_length=250),
        ),
        migrations.AlterField(
            model_name="mcpauthorization",
            name="owner",
            field=models.CharField(blank=True, help_text=OWNER, max_length=250),
        ),
        migrations.AlterField(
            model_name="mcpconsent",
            name="owner",
            field=models.CharField(blank=True, max_length=250),
        ),
        migrations.AddField(
            model_name="message",
            name="addressees",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(),
                default=list,
                editable=False,
                help_text="Whose inboxes, by id.",
                size=None,
            ),
        ),
        migrations.RunSQL(REMEMBER, FORGET),
    ]
