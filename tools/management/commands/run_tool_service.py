"""`manage.py run_tool_service DOTTED.PATH`: run a tool service at the product's broker."""

import os
import sys
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.core.management.base import CommandParser

from config.external_servers import find_broker
from toolcrib_service.__main__ import add_options, load
from toolcrib_service.service import DynamicToolService
from toolcrib_service.service_process import keep_processes, run
from tools.errors import Malformed, Unavailable
from tools.management.arguments import find_organization
from tools.management.command import ToolcribCommand
from tools.models import ToolService


class Command(ToolcribCommand):
    help = (
        "Runs a tool service until it is told to stop. Its queue is the registered one where the "
        "organization has a service of that id."
    )

    def arguments(self, parser: CommandParser) -> None:
        add_options(parser)

    def perform(self, options: dict[str, Any]) -> int:
        if options["processes"] > 1:
            return keep_processes(
                [sys.executable, *sys.argv, "--processes=1"], options["processes"]
            )
        sys.path.insert(0, os.getcwd())
        service = _service(options)
        broker = find_broker(settings.TOOL_SERVICE_BROKERS, options["organization"], service.id)
        if broker and options["announce"]:
            raise Malformed("Only at our own broker do services announce themselves.")
        key = options["key"] or Path(settings.DATA_DIR) / f"service-{service.id}.key"
        self.answer(options, service.descriptor(), f"{service.id} listens; Ctrl-C ends it.")
        try:
            return run(
                service, broker.url if broker else settings.REDIS_URL,
                organization=options["organization"],
                concurrency=options["concurrency"], lease_s=options["lease"],
                grace_s=options["grace"], announce_with=key if options["announce"] else None,
                options=broker.options if broker else None,
            )  # fmt: skip
        except redis.RedisError:
            raise Unavailable("The broker does not answer.") from None


def _service(options: dict[str, Any]) -> DynamicToolService:
    organization = find_organization(options["organization"])
    try:
        service = load(options["path"])
    except SystemExit as flaw:
        raise Malformed(str(flaw)) from None
    service.id = options["id"] or service.id
    if not service.id:
        raise Malformed("Name the service: --id, or `id` of its class.")
    row = ToolService.objects.filter(organization=organization, name=service.id).first()
    if row is not None and row.request_queue and not options["announce"]:
        service.request_queue = row.request_queue
    return service
