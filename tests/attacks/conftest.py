"""A sandboxd to be attacked, with something to lose in each of its pockets."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from sandbox.spec import IsolationLevel
from tests.attacks.brokers import brokering
from tests.attacks.control import Run
from tests.attacks.siege import Siege, besieged
from tests.attacks.tally import TALLY
from tests.sandbox.conftest import Daemon, remove_groups

# Two suites may run on one machine at the same time.
GROUPS = f"toolcrib-siege-{os.getpid()}"
# sandboxd inherits a secret in a variable, one in a file, and the root of the machine.
_LADEN = """
import os, sys
os.dup2(os.open(sys.argv[1], os.O_RDONLY), 77)
os.dup2(os.open("/", os.O_RDONLY), 78)
os.execv(sys.argv[2], sys.argv[2:])
"""

type MakeDaemon = Callable[[], Daemon]


@pytest.fixture(scope="session", autouse=True)
def control(request: pytest.FixtureRequest) -> Iterator[Run | None]:
    """Starts at once where a test needs it: it has a machine of its own and waits for nothing."""
    wanted = any(item.path.name == "test_control.py" for item in request.session.items)
    run = Run() if wanted else None
    yield run
    if run is not None:
        run.stop()


@pytest.fixture(scope="session")
def secret() -> str:
    return f"secret-{uuid4().hex}"


@pytest.fixture(scope="session")
def laden(secret: str) -> Iterator[tuple[str, ...]]:
    """The beginning of a command line that gives secrets to the rest of it."""
    with tempfile.NamedTemporaryFile("w", prefix="siege") as file:
        file.write(secret)
        file.flush()
        variable = f"SIEGE_SECRET={secret}"
        yield ("/usr/bin/env", variable, sys.executable, "-c", _LADEN, file.name)


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The socket of an egress broker that may dial one address only, and whose names are ours."""
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        os.chmod(directory, 0o755)
        with brokering(f"{directory}/e"):
            yield f"{directory}/e"


@pytest.fixture(scope="session")
def siege(laden: tuple[str, ...], secret: str, broker: str) -> Iterator[Siege]:
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        os.chmod(directory, 0o755)
        daemon = Daemon(directory, GROUPS, "--egress", broker, through=laden)
        daemon.start()
        with besieged(daemon, GROUPS, secret, broker) as siege:
            yield siege
        daemon.stop()
        remove_groups(GROUPS)


@pytest.fixture
def make_daemon() -> Iterator[MakeDaemon]:
    """Daemons a test may kill."""
    made: list[Daemon] = []
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        os.chmod(directory, 0o755)

        def make() -> Daemon:
            made.append(Daemon(directory, f"{GROUPS}-own"))
            made[-1].start()
            return made[-1]

        yield make
        for daemon in made:
            if daemon.process.poll() is None:
                daemon.stop()


@pytest.fixture
def needs(siege: Siege) -> Callable[[IsolationLevel], None]:
    """Skips what this machine does not serve; another test says that it serves everything."""

    def need(level: IsolationLevel) -> None:
        if level not in siege.served:
            pytest.skip(f"{level} is not served here")

    return need


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line: how many were contained, how, and how many bite without a sandbox."""
    line = TALLY.line()
    if line:
        terminalreporter.write_line(line)
