"""A small file system for what is to be filled up."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(place: Path, size: int) -> Iterator[bool]:
    """In this machine's memory, over a directory; False where it may not be mounted."""
    options = f"size={size},mode=0711"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    done = not os.geteuid() and not subprocess.run(mount, check=False).returncode
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(place)], check=False)
