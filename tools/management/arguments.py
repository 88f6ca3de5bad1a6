"""Types of arguments: what they refuse is bad usage and ends with exit code 2."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from tools.definitions import durations, names, strict_json

MOST_DAYS = 365


def slug(text: str) -> str:
    if not names.SLUG.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is no slug: lower-case letters, digits and hyphens")
    return text


def days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_DAYS:
        raise ArgumentTypeError(f"{text!r} is not a number of days from 1 to {MOST_DAYS}")
    return int(text)


def duration(text: str) -> float:
    """Seconds of an ISO 8601 duration."""
    try:
        length_s = durations.seconds(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is {error}") from None
    if length_s <= 0:
        raise ArgumentTypeError("a call needs more time than none")
    return length_s


def parameters(text: str) -> dict[str, Any]:
    """A JSON object; `-` reads it from standard input."""
    try:
        value = strict_json.parse(sys.stdin.buffer.read() if text == "-" else text)
    except strict_json.BadJson as error:
        raise ArgumentTypeError(f"the parameters cannot be used: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentTypeError('the parameters must be a JSON object such as {"path": "a.txt"}')
    return value


def add_request(parser: ArgumentParser) -> None:
    """`--group` and `--state`: what a request names."""
    parser.add_argument(
        "--group",
        action="extend",
        nargs="*",
        metavar="G",
        help="requested groups; absent is default, without a value it is the empty list",
    )
    parser.add_argument("--state", help="the current state of the workflow")


def add_agent(parser: ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--agent", type=slug, required=required, metavar="A")
    parser.add_argument(
        "--organization", type=slug, default="default", metavar="O", help="default: default"
    )


def groups_of(options: dict[str, Any]) -> list[str] | None:
    """Absent stays None; `--group` and `--group ""` are both the empty list (ruling 2)."""
    given: list[str] | None = options["group"]
    return None if given is None else [name for name in given if name]
