"""Started by root, each template has a user of its own, and files stay sandboxd's."""

import os
import signal
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from sandbox.daemon import account_helper
from sandbox.daemon.account_helper import UIDS, claim_user
from sandbox.daemon.privileges import SANDBOX_UID
from sandbox.daemon.run_accounts import AccountHelperClient, LeasedAccount, OwnAccounts
from sandbox.spec import Backend, IsolationLevel, Mount, Profile
from tests.conditions import until
from tests.sandbox.run_observer import ENDLESS_S, arrange

NONE = Profile(IsolationLevel.NONE)
USER = "import os\ndef main(p):\n    return os.getuid()"
WRITES = """
import os
from toolcrib import place
def main(p):
    path = place("/given") + "/" + p["name"]
    with open(path, "w") as file:
        file.write("written")
    os.chmod(path, 0o600)
    return os.stat(path).st_uid == os.getuid()
"""
READS = "def main(p):\n    return open(p['path']).read()"
SLEEPS = """
import time
from toolcrib import place
def main(p):
    open(place("/meet") + "/fifo", "w").write("started")
    time.sleep(86400)
"""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root has users to give")


@pytest.fixture
def closed(tmp_path):
    """A directory that sandboxd's user alone may read, below one that it alone may pass."""
    place = tmp_path / "workspaces" / "acme"
    place.mkdir(parents=True)
    for directory in (place, place.parent):
        os.chown(directory, SANDBOX_UID, SANDBOX_UID)
        directory.chmod(0o700)
    return place


@pytest.fixture
def helper():
    one = AccountHelperClient(
        *account_helper.fork(SANDBOX_UID, [Path("/sys/fs/cgroup/no-such-tree")])
    )
    yield one
    one.close()


@pytest.fixture
def bystander():
    """A process of root's."""
    process = subprocess.Popen(["/bin/sleep", "86400"])
    yield process
    process.kill()
    process.wait()


def test_organizations_run_as_different_users(run, daemon):
    users = [run(USER, profile=NONE, organization=name).output for name in ("one", "two", "one")]
    assert users[0] == users[2] != users[1]
    assert {*users} < {*UIDS}
    assert daemon.client.ping()["accounts_flaw"] is None


@pytest.mark.parametrize(
    "profile",
    [
        NONE,
        Profile(IsolationLevel.STANDARD),
        Profile(IsolationLevel.STRICT),
        Profile(IsolationLevel.STANDARD, backend=Backend.DEGRADED),
    ],
    ids=["None", "Standard", "Strict", "degraded"],
)
def test_what_they_write_is_sandboxds_on_the_disk(run, closed, profile):
    """So each later run, a backup and a quota find it."""
    mounts = (Mount(str(closed), "/given", writable=True),)
    shared = Profile(profile.level, mounts, backend=profile.backend)
    for name in ("one", "two"):
        result = run(WRITES, {"name": name}, profile=shared, organization=name)
        assert result.output is True, result
    found = [entry.stat() for entry in closed.iterdir()]
    assert [(one.st_uid, one.st_gid) for one in found] == [(SANDBOX_UID, SANDBOX_UID)] * 2


def test_what_others_own_stays_theirs(run, tmp_path):
    place = tmp_path / "given"
    place.mkdir()
    place.chmod(0o777)
    (place / "private").write_text("of root")
    (place / "private").chmod(0o600)
    mounts = (Mount(str(place), "/given", writable=True),)
    profile = Profile(IsolationLevel.STANDARD, mounts)
    result = run(READS, {"path": "/given/private"}, profile=profile)
    assert "Permission denied" in (result.error_message or "")
    assert run(WRITES, {"name": "new"}, profile=profile).output is True


def test_without_namespaces_no_run_reads_what_is_not_mounted_for_it(run, closed):
    """As sandboxd's user it did: workspaces of others, and what their runs have on the disk."""
    (closed / "secret").write_text("secret")
    os.chown(closed / "secret", SANDBOX_UID, SANDBOX_UID)
    result = run(READS, {"path": str(closed / "secret")}, profile=NONE)
    assert "Permission denied" in (result.error_message or "")


def test_paths_inside_one_another_are_each_mounted(run, closed):
    (closed / "inner").mkdir(mode=0o700)
    os.chown(closed / "inner", SANDBOX_UID, SANDBOX_UID)
    mounts = (
        Mount(str(closed / "inner"), "/inner", writable=True),
        Mount(str(closed), "/given", writable=True),
    )
    profile = Profile(IsolationLevel.STANDARD, mounts)
    assert run(WRITES, {"name": "inner/file"}, profile=profile).output is True
    assert run(READS, {"path": "/inner/file"}, profile=profile).output == "written"


@pytest.mark.part("sandbox")
def test_where_a_path_cannot_be_mounted_so_its_runs_are_sandboxds_and_it_is_said(
    own_daemon, tmp_path
):
    place = tmp_path / "memory"
    place.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "none", place], check=True)
    try:
        os.chown(place, SANDBOX_UID, SANDBOX_UID)
        daemon = own_daemon()
        profile = Profile(NONE.level, (Mount(str(place), "/given", writable=True),))
        assert daemon.run(WRITES, {"name": "one"}, profile=profile).output is True
        assert daemon.run(USER, profile=profile).output == SANDBOX_UID
        assert daemon.run(USER, profile=NONE).output in UIDS
        assert daemon.client.ping()["accounts_flaw"] is not None
        daemon.stop()
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.part("sandbox")
def test_without_the_helper_sandboxd_and_every_run_end(own_daemon, tmp_path):
    daemon, meeting, ended = own_daemon(), arrange(tmp_path), []
    work = {"profile": meeting.profile, "wall_s": ENDLESS_S}
    thread = threading.Thread(target=lambda: ended.append(daemon.run(SLEEPS, **work)))
    thread.start()
    assert meeting.hear(ended) == "started"
    os.kill(root_child_of(daemon.process.pid), signal.SIGKILL)
    thread.join()
    assert ended[0].error_code in ("LOST", "EXITED")
    assert daemon.process.wait(30) == 0


def root_child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(one) for one in children if Path(f"/proc/{one}").stat().st_uid == 0)


def test_no_other_daemon_of_the_machine_gives_a_user_that_is_in_use(own_daemon):
    """The end of one ends all that runs as its users: it must not be another's run."""
    daemon = own_daemon()
    user = daemon.run(USER, profile=NONE).output
    assert claim_user(user) is None
    daemon.stop(signal.SIGKILL)
    until(lambda: claim_user(user)).close()


def test_a_user_that_another_daemon_has_is_passed_over(own_daemon):
    with claim_user(UIDS[0]) or nullcontext():  # where there is none, another has it already
        daemon = own_daemon()
        assert daemon.run(USER, profile=NONE).output in UIDS[1:]


@pytest.mark.parametrize("uid", [UIDS[0], 0, UIDS[-1] + 1])
def test_the_helper_kills_and_moves_nothing_that_runs_as_another_user(helper, bystander, uid):
    account, pidfd = LeasedAccount(helper, uid), os.pidfd_open(bystander.pid)
    account.kill(pidfd)
    account.kill_session(os.getsid(bystander.pid))
    with pytest.raises(OSError, match="does not run as"):
        account.give_way(bystander.pid)
    with pytest.raises(OSError, match="does not run as"):
        account.enter(bystander.pid, "run-x", [])
    os.close(pidfd)
    assert bystander.poll() is None
    assert os.getpriority(os.PRIO_PROCESS, bystander.pid) == os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize("group", ["../daemon", "run-x/../../other", "daemon"])
def test_the_helper_moves_into_groups_of_runs_alone(helper, group):
    sleep = ["/bin/sleep", "86400"]
    with (
        claim_user(UIDS[0]) or nullcontext(),  # or the helper ends it as left over
        subprocess.Popen(sleep, user=UIDS[0], group=UIDS[0], cwd="/") as process,
    ):
        try:
            with pytest.raises(OSError, match="is no group of a run"):
                LeasedAccount(helper, UIDS[0]).enter(process.pid, group, [])
        finally:
            process.kill()


def test_a_session_has_ended_when_the_helper_has_killed_it(helper):
    script = "sleep 86400 & sleep 86400 & echo started >&2; wait"
    program = OwnAccounts(helper).lend(["/usr/bin/setsid", "/bin/sh", "-c", script], {}, [], [])
    with program.stdin, program.stderr:
        assert program.stderr.readline() == b"started\n"
        fdinfo = Path(f"/proc/self/fdinfo/{program.pidfd}").read_text()
        leader = int(fdinfo.split("Pid:")[1].split()[0])
        program.account.kill_session(leader)
        assert program.stderr.read() == b""  # all of them held it
    program.end()


LEAVES_A_CHILD = ["/bin/sh", "-c", "/usr/bin/setsid /bin/sleep 86400 >&- 2>&- & echo $! >&2"]


def test_what_a_program_leaves_behind_ends_with_it(helper):
    """As bwrap does where it is killed before its child follows it. Its user is another's next."""
    program = OwnAccounts(helper).lend(LEAVES_A_CHILD, {}, [], [])
    with program.stdin, program.stderr:
        left = int(program.stderr.readline())
    until(lambda: has_ended(left))


def test_what_a_killed_helper_left_ends_when_the_next_one_begins():
    control, pid = account_helper.fork(SANDBOX_UID, [])
    killed = AccountHelperClient(control, pid)
    killed._closing = True  # or this process would end with it, as sandboxd does
    asleep = ["/bin/sh", "-c", "/usr/bin/setsid /bin/sleep 86400 & echo $! >&2; wait"]
    program = OwnAccounts(killed).lend(asleep, {}, [], [])
    with program.stdin, program.stderr:
        left = int(program.stderr.readline())
    os.kill(pid, signal.SIGKILL)
    killed.close()
    assert not has_ended(left)
    AccountHelperClient(*account_helper.fork(SANDBOX_UID, [])).close()
    until(lambda: has_ended(left))


def has_ended(pid: int) -> bool:
    """Also where its parent has not reaped it."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def test_what_the_helper_starts_is_not_root_and_holds_nothing_else(helper):
    """Neither capabilities, nor groups, nor a descriptor beside those it is given."""
    script = "cat /proc/self/status >&2; ls /proc/self/fd >&2"
    program = OwnAccounts(helper).lend(["/bin/sh", "-c", script], {}, [], [])
    with program.stdin, program.stderr:
        stderr = program.stderr.read().decode()
    program.end()
    words = dict(line.split(":", 1) for line in stderr.splitlines() if ":\t" in line)
    uid = program.account.uid
    assert words["Uid"].split() == words["Gid"].split() == [str(uid)] * 4
    assert words["Groups"].split() == []
    assert {int(words[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert words["NoNewPrivs"].strip() == "1"
    assert stderr.splitlines()[-4:] == ["0", "1", "2", "3"]  # the last is the directory itself
