"""Where an organization's files lie on the host. Only the sandbox opens what is inside."""

import os
from functools import lru_cache
from pathlib import Path

from django.conf import settings


@lru_cache(maxsize=1024)
def workspace_of(organization: str) -> Path:
    """The organization's directory, made on first use and given to whom the workspaces belong."""
    root = Path(settings.WORKSPACES_DIR)
    root.mkdir(parents=True, exist_ok=True)
    place = root / organization
    place.mkdir(mode=0o755, exist_ok=True)
    owner = root.stat()
    if os.geteuid() == 0 and place.stat().st_uid != owner.st_uid:
        os.chown(place, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return place
