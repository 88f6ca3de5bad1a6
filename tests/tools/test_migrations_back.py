"""Every migration is reversible, so that a release can be rolled back."""

from django.db.migrations.loader import MigrationLoader

OURS = ("audit", "tools")


def test_every_migration_has_a_way_back():
    migrations = MigrationLoader(None).disk_migrations
    assert {app for app, _ in migrations} >= {*OURS}
    assert not [
        (app, name, operation)
        for (app, name), migration in migrations.items()
        for operation in migration.operations
        if app in OURS and not operation.reversible
    ]
