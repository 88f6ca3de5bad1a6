"""The ways of a run to the egress broker: a socket, and an address that looks like a proxy."""

import fcntl
import os
import socket
import struct

PROXY_PORT = 3128
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_SET_FLAGS = 0x8914
_UP = 1
_BACKLOG = 16


def proxy_listener() -> socket.socket:
    """Made in the run's own network namespace, where it stays: the broker accepts from outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", PROXY_PORT))
    listener.listen(_BACKLOG)
    return listener


def announce_proxy() -> None:
    """The variables that programs read; both spellings are in use."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ[name] = _PROXY
