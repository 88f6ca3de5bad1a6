"""The socket that sandboxd listens on, and the peer credentials of a connection."""

import os
import socket
import struct

_PEER = struct.Struct("3i")
_BACKLOG = 128


def listen(path: str) -> socket.socket:
    """Replaces the socket an earlier sandboxd left; only one without a listener."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.exists(path):
        remove_dead(path)
    listener.bind(path)
    os.chmod(path, 0o666)  # noqa: S103 - connecting is free, the peer is checked
    listener.listen(_BACKLOG)
    return listener


def remove_dead(path: str) -> None:
    """Raises OSError when another sandboxd answers there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        try:
            knock.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        else:
            raise OSError(f"another sandboxd listens on {path}")


def peer_uid(worker: socket.socket) -> int:
    raw = worker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(raw)[1])
