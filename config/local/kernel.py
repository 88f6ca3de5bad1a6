"""Check the kernel features that the sandbox needs, as the user that will need them."""

import os
import subprocess
import sys
from pathlib import Path

from config.local.child_processes import ProcessSpec, launcher
from config.local.unix_accounts import sandbox_account

TRY = "import os; os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET)"
SWITCHES = {
    "kernel/unprivileged_userns_clone": "0",
    "user/max_user_namespaces": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}


def missing_features(reach: tuple[Path, ...]) -> list[str]:
    """A sentence for each feature that is not there; sandboxed tools will then be refused."""
    missing = []
    if not _namespaces_work(reach):
        missing.append(
            f"User namespaces are not permitted here{_culprit()}:"
            " tools that need isolation will be refused."
        )
    if "Seccomp:" not in Path("/proc/self/status").read_text(encoding="utf-8"):
        missing.append("This kernel has no seccomp: tools that need isolation will be refused.")
    return missing


def _namespaces_work(reach: tuple[Path, ...]) -> bool:
    spec = ProcessSpec(
        name="kernel",
        command=(sys.executable, "-I", "-S", "-c", TRY),
        directory=Path("/"),
        account=sandbox_account(),
        reach=reach,
    )
    return not subprocess.run(launcher(spec), env={}, capture_output=True, check=False).returncode


def _culprit() -> str:
    for name, forbids in SWITCHES.items():
        switch = Path("/proc/sys", name)
        if os.access(switch, os.R_OK) and switch.read_text(encoding="ascii").strip() == forbids:
            return f" (sysctl {name.replace('/', '.')} is {forbids})"
    return ""
