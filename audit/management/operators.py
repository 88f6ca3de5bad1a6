"""The operator who runs a command, as evidence names them, and the entry point."""

import os
import pwd

from uuid_utils.compat import uuid7

from audit import actions
from audit.actions import Actor


def operator(organization: str, request_id: str = "") -> Actor:
    """All that is recorded from now on came by a command; the id of the run is in all of it."""
    actions.set_source("command")
    return Actor(
        "system",
        f"command:{operator_login()}",
        organization,
        request_id=request_id or f"command-{uuid7()}",
    )


def operator_login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an account without a name, as containers have
        return str(os.getuid())
