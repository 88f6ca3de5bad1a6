"""sandboxd as our supervisor starts it: an unprivileged uid that was given its cgroups."""

import os
import sys

import pytest

from sandbox.daemon.limits import cgroups
from sandbox.spec import MIB
from tests.sandbox.conftest import GROUPS
from tests.sandbox.run_observer import arrange

UID = 12345
NAME = f"{GROUPS}-user"

# What a root supervisor does between fork and exec. `enter` is optional on this machine's hybrid.
BECOME = f"""
import os, sys
from sandbox.daemon import privileges
from sandbox.daemon.limits import cgroups
if sys.argv[1] == "enter":
    cgroups.enter({NAME!r}, os.getpid())
os.unshare(os.CLONE_NEWNS)
privileges.stay_reachable()
os.setgroups([])
os.setgid({UID})
os.setuid({UID})
os.execve(sys.argv[2], sys.argv[2:], {{}})
"""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")


@pytest.fixture(params=["enter", "stay out"])
def ordinary(own_daemon, request):
    cgroups.delegate(NAME, UID, UID)
    through = (sys.executable, "-c", BECOME, request.param)
    return own_daemon(cgroup_root=NAME, through=through)


@pytest.mark.part("sandbox", but_each=2)
def test_it_serves_the_same_level_with_its_limits(ordinary):
    assert ordinary.facts["ready"]["level_ceiling"] == "Restricted"
    assert ordinary.facts["ready"]["uid"] == UID
    assert ordinary.facts["ready"]["accounts_flaw"] == "sandboxd was not started by root"
    greedy = "import mmap\ndef main(p):\n    m = mmap.mmap(-1, 99 << 20)\n"
    greedy += "    for at in range(0, len(m), 4096): m[at] = 1"
    assert ordinary.run(greedy, memory_bytes=32 * MIB).error_code == "MEMORY_LIMIT"
    assert ordinary.run("def main(p):\n    return 1").usage.approximate is False


@pytest.mark.part("sandbox")
def test_what_a_run_writes_belongs_to_that_user(ordinary, tmp_path):
    profile = arrange(tmp_path).profile
    source = "def main(p):\n    open('/meet/made', 'w').close()"
    assert ordinary.run(source, profile=profile).error_code is None
    assert (tmp_path / "made").stat().st_uid == UID
