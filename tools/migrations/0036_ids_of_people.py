"""Owners of MCP credentials, issuers of tokens, addressees and names in use, from names to ids. A
name that resolves to no account leaves its row without an owner: usable by no one."""

from django.db import migrations


def carry_over(apps, editor):
    """Safe to repeat."""
    models = {
        name: apps.get_model("tools", name)
        for name in (
            "Agent", "McpAuthorization", "McpConsent", "McpCredential", "Message", "Token",
            "UsedName", "User",
        )
    }  # fmt: skip
    people = models["User"].objects.filter(is_service_account=False)
    for name in ("McpCredential", "McpAuthorization"):
        for row in models[name].objects.exclude(owner="").select_related("server"):
            row.owner = _key(row, models["Agent"].objects, people)
            row.save(update_fields=["owner"])
    models["McpConsent"].objects.all().delete()  # good for minutes, and begun again by a click
    for token in models["Token"].objects.filter(created_by__startswith="person:", issuer=None):
        issuer = people.filter(username=token.created_by.removeprefix("person:")).first()
        if issuer is not None:
            token.issuer = issuer
            token.save(update_fields=["issuer"])
    unsent = models["Message"].objects.filter(kind="inbox", addressees=[]).exclude(state="sent")
    for message in unsent:
        named = people.filter(
            organization_id=message.organization_id, username__in=message.recipients
        )
        message.addressees = [*named.values_list("pk", flat=True)]
        message.save(update_fields=["addressees"])
    known = models["UsedName"].objects.values_list("name", flat=True)
    models["UsedName"].objects.bulk_create(
        [
            models["UsedName"](name=user.username, user_id=user.pk)
            for user in models["User"].objects.exclude(username__in=known)
        ]
    )


def _key(row, agents, people):
    kind, _, name = row.owner.partition(":")
    if kind == "none" or _is_id(name):
        return row.owner
    found = None
    if kind == "agent":
        found = agents.filter(organization_id=row.server.organization_id, slug=name).first()
    elif kind == "user":
        found = people.filter(username=name).first()
    return f"none:{row.owner}" if found is None else f"{kind}:{found.pk}"


def _is_id(name):
    return len(name) == 36 and name.count("-") == 4 and not set(name) - set("0123456789abcdef-")


class Migration(migrations.Migration):
    dependencies = [("tools", "0035_who_is_who")]

    operations = [migrations.RunPython(carry_over, migrations.RunPython.noop)]
