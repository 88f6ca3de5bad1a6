"""What the live process serves: streams that say when to look again, on one loop."""

import os
import resource

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from django.conf import settings  # noqa: E402

from tools.live.app import Live  # noqa: E402

_OTHERS = 256  # files that are open besides


def _make_room(streams: int) -> None:
    """A stream is an open file, and of these the system allows few unless it is asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, streams + _OTHERS)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


_make_room(settings.LIVE_STREAMS)
application = Live()
