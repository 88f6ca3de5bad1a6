"""Landlock rules for the file system: access that the mounts allow must be allowed here as well."""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from sandbox.inside.layers import libc

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _PORT = 1, 2
_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE = 1 << 14
_ACCESS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}  # by ABI; 16 since ABI 5 (ioctl on devices)
_READ = _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | (1 << 15)
_MAKE_DEVICES = (1 << 6) | (1 << 11)  # character and block devices
_NETWORK_SINCE, _BIND_AND_CONNECT, _CONNECT = 4, 3, 2
_SCOPES_SINCE, _ABSTRACT_SOCKETS_AND_SIGNALS = 6, 3


def abi() -> int:
    """0 where the kernel has no Landlock or it is switched off."""
    try:
        return libc.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    except OSError:
        return 0


class Ruleset:
    """Made once in the template; the paths are opened by each slot, in its own mounts.

    A number is a descriptor that the template was given.
    """

    def __init__(
        self,
        readable: Iterable[str | int],
        executable: Iterable[str],
        writable: Iterable[str | int],
        ports: Iterable[int] = (),
    ) -> None:
        self._abi = abi()
        self._all = (1 << _ACCESS_BITS.get(self._abi, 16)) - 1
        write = self._all & ~_EXECUTE & ~_MAKE_DEVICES
        self._rules: list[tuple[str | int, int]] = [(path, _READ) for path in readable]
        self._rules += [(path, _READ | _EXECUTE) for path in executable]
        self._rules += [(path, write) for path in writable]
        self._rules += [("/dev/null", self._file(_READ_FILE | _WRITE_FILE | _TRUNCATE))]
        self._ports = list(ports) if self._abi >= _NETWORK_SINCE else []

    def _file(self, access: int) -> int:
        return access & self._all

    def _attributes(self) -> bytes:
        network = _BIND_AND_CONNECT if self._abi >= _NETWORK_SINCE else 0
        scopes = _ABSTRACT_SOCKETS_AND_SIGNALS if self._abi >= _SCOPES_SINCE else 0
        return struct.pack("=QQQ", self._all, network, scopes)

    def _attributes_size(self) -> int:
        if self._abi >= _SCOPES_SINCE:
            return 24
        return 16 if self._abi >= _NETWORK_SINCE else 8

    def restrict(self, writable: Iterable[str] = ()) -> None:
        """Bind this process and its children; needs no_new_privs. `writable` is this slot's own."""
        if not self._abi:
            return
        size = ctypes.c_size_t(self._attributes_size())
        rules = libc.syscall(_CREATE, self._attributes(), size, 0)
        write = self._all & ~_EXECUTE & ~_MAKE_DEVICES
        for path, access in (*self._rules, *((path, write) for path in writable)):
            _allow(rules, path, access)
        for port in self._ports:
            rule = struct.pack("=QQ", _CONNECT, port)
            libc.syscall(_ADD_RULE, rules, _PORT, rule, 0)
        libc.syscall(_RESTRICT_SELF, rules, 0)
        os.close(rules)


def _allow(ruleset: int, path: str | int, access: int) -> None:
    beneath = os.dup(path) if isinstance(path, int) else os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(beneath).st_mode):
        access &= _OF_A_FILE
    rule = struct.pack("=Qi", access, beneath)
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(beneath)
