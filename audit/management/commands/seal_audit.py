import logging
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from audit.log.remote_anchors import BadAddress, configured_publishers
from audit.log.sealer import Sealer


class Command(BaseCommand):
    help = "Seal the audit log until stopped: places, checkpoints, anchors. `up` starts it."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, lambda *_: stop.set())
        try:
            publishers = configured_publishers()
        except BadAddress as error:
            raise CommandError(f"A place to leave checkpoints at cannot be used: {error}") from None
        for publisher in publishers:
            publisher.start()
        logging.getLogger(__name__).info("the sealer has begun")
        Sealer(stop, publishers).run()
        for publisher in publishers:
            publisher.stop()
