"""Safe redirect targets: one function checks them for every page."""

import re

from django.utils.http import url_has_allowed_host_and_scheme

_LONGEST = 2_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


def own_path(wanted: str, otherwise: str) -> str:
    """`wanted` where it is a path of ours, with its query; else `otherwise`."""
    ours = (
        wanted.startswith("/")
        and len(wanted) <= _LONGEST
        and not _CONTROL.search(wanted)
        and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    )
    return wanted if ours else otherwise
