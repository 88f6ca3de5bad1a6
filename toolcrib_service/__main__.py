"""`python -m toolcrib_service package.module.Class --url redis://… [--id ID]`"""

import argparse
import importlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import redis

from toolcrib_service.redis_worker import LEASE_S
from toolcrib_service.service import DynamicToolService
from toolcrib_service.service_process import GRACE_S, is_redis, keep_processes, run

URL = "TOOLCRIB_BROKER_URL"
OPTIONS = "TOOLCRIB_BROKER_OPTIONS"


def load(dotted: str) -> DynamicToolService:
    """The service at `package.module.Class`. Raises `SystemExit` with what is wrong."""
    module, _, name = dotted.rpartition(".")
    if not module:
        raise SystemExit(f"{dotted} is no dotted path such as package.module.Class")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SystemExit(f"{dotted} cannot be imported: {error}") from error
    if not (isinstance(made, type) and issubclass(made, DynamicToolService)):
        raise SystemExit(f"{dotted} is no DynamicToolService")
    return made()


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this command and the product's own have in common."""
    parser.add_argument("path", metavar="DOTTED.PATH", help="the service's class")
    parser.add_argument("--id", help="of the tool service; absent: as the class says")
    parser.add_argument("--organization", default="default")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    parser.add_argument("--concurrency", type=int, default=4, metavar="N", help="calls at once")
    parser.add_argument("--lease", type=float, default=LEASE_S, metavar="S", help="seconds")
    parser.add_argument("--grace", type=float, default=GRACE_S, metavar="S", help="seconds")
    parser.add_argument("--announce", action="store_true", help="say what it is, signed")
    parser.add_argument("--key", type=Path, help="file of the signing key, made on first use")


def _options(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Of kombu's transport, as JSON: an environment keeps what may be secret in them."""
    try:
        options = json.loads(os.environ.get(OPTIONS) or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict):
        parser.error(f"{OPTIONS} must be a JSON object")
    return options


def main() -> int:
    parser = argparse.ArgumentParser(prog="toolcrib_service", description=__doc__)
    add_options(parser)
    parser.add_argument("--url", help=f"of the broker; better as {URL}: others can read arguments")
    parser.add_argument("--request-queue", help="as in the service's descriptor")
    given = parser.parse_args()
    url = given.url or os.environ.get(URL)
    if not url:
        parser.error(f"name the broker: --url or {URL}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if given.processes > 1:
        os.environ[URL] = url
        command = [sys.executable, "-m", "toolcrib_service", *sys.argv[1:], "--processes=1"]
        return keep_processes(command, given.processes)
    sys.path.insert(0, os.getcwd())
    service = load(given.path)
    service.id = given.id or service.id
    service.request_queue = given.request_queue or service.request_queue
    if given.announce and not is_redis(url):
        parser.error("only at a Redis do services announce themselves")
    key = (given.key or Path(f"{service.id}.key")) if given.announce else None
    try:
        return run(
            service, url, organization=given.organization, concurrency=given.concurrency,
            lease_s=given.lease, grace_s=given.grace, announce_with=key,
            options=_options(parser),
        )  # fmt: skip
    except redis.RedisError as error:
        raise SystemExit(f"The broker cannot be used: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
