"""Exports of evidence as files with a signed manifest. Permissions are checked elsewhere."""
