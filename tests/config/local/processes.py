"""Processes as the machine sees them."""

from pathlib import Path


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


def using(directory: Path) -> list[int]:
    """Processes whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory).encode() in words:
            found.append(int(entry.name))
    return found
