"""What every test may ask for. The database, the broker and the sandbox are real ones."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID, uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connections
from django.db.models.functions import Now
from django.test import Client, override_settings
from django.test.client import ClientHandler
from hypothesis import HealthCheck, settings

from audit import actions
from audit.export import export
from tests import crib as cribs
from tests import factories, organizations, stores
from tests.api import Api
from tests.factories import QuickHasher
from tests.tools.api import document
from tests.tools.approval_requests import call_awaiting_approval
from tests.tools.execution.workers import stopped
from tools.definitions.results import Status
from tools.models import Agent, Confirmation, Execution, Organization, Tool, User
from tools.runners.tool_runs import sandbox_client

# The same examples in every run, so that a failure is of the change under test. What new examples
# would find, the part `exploring` looks for. How long one takes says something of the machine
# alone.
_UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, max_examples=40, **_UNTIMED)
settings.register_profile("exploring", derandomize=False, max_examples=300, **_UNTIMED)
settings.load_profile("steady")
RUNNING = pytest.StashKey[cribs.Crib]()
USED = pytest.StashKey[list[UUID]]()
MANY_USED = 25  # so many organizations are taken away together


def pytest_collection_finish() -> None:
    """What was imported and collected lives until the end: a search for garbage leaves it out, and
    comes less often than usual."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def servers_in() -> Iterator[Path]:
    """The data directory, with PostgreSQL migrated and all that calls need but the product."""
    place = Path(os.environ["TOOLCRIB_DATA"])
    with stores.running(place):
        yield place
    if not os.environ.get("TOOLCRIB_TEST_DATA"):
        cribs.remove(place)


@pytest.fixture(scope="session")
def crib(
    request: pytest.FixtureRequest, servers_in: Path, django_db_setup: None
) -> Iterator[cribs.Crib]:
    """The running product, on the stores that the tests use. It starts with the first test that
    asks for it and ends with the last (`tests/parts.py`); the others share no processor with it."""
    with cribs.running(servers_in, stores.urls(servers_in)) as running:
        request.config.stash[RUNNING] = running
        yield running
        del request.config.stash[RUNNING]


@pytest.fixture(scope="session")
def django_db_setup(servers_in: Path, django_db_blocker: Any) -> Iterator[None]:
    """Each test takes back what it did in this database."""
    with django_db_blocker.unblock():
        organizations.prepare()
    yield
    with django_db_blocker.unblock():
        for connection in connections.all():
            connection.close()
            connection.close_pool()
    sandbox_client().close()


@pytest.fixture(scope="session", autouse=True)
def _settings() -> Iterator[None]:
    """Calls that one test leaves waiting must not reject those of another one."""
    hashers = [f"{QuickHasher.__module__}.{QuickHasher.__name__}"]
    sockets = stores.sockets(django_settings.DATA_DIR)
    with override_settings(
        QUEUE_AGE_S=3600, READS_PER_MINUTE=0, PASSWORD_HASHERS=hashers, **sockets
    ):
        yield


@pytest.fixture(scope="session", autouse=True)
def _middleware_loaded_once(_settings: None) -> Iterator[None]:
    """Each `Client` loads the middleware, which looks through all static files, and that takes as
    long as three requests. Where a test has changed no setting, it gets what is loaded already."""
    load, usual, kept = ClientHandler.load_middleware, django_settings._wrapped, {}

    def load_once(self: ClientHandler, is_async: bool = False) -> None:
        if is_async or django_settings._wrapped is not usual:
            load(self, is_async)
        elif kept:
            vars(self).update(kept)
        else:
            before = {*vars(self)}
            load(self)
            kept.update({name: value for name, value in vars(self).items() if name not in before})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClientHandler, "load_middleware", load_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _answers_are_documented() -> Iterator[None]:
    """Whatever the API answers to a test, its document says."""
    handle = ClientHandler.__call__

    def answer(self: ClientHandler, environ: dict[str, Any]) -> Any:
        response = handle(self, environ)
        method, path = environ["REQUEST_METHOD"], unquote(environ["PATH_INFO"])
        wrong = [*document.flaws(method, path, response)]
        assert not wrong, f"{method} {path}: {wrong}"
        return response

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClientHandler, "__call__", answer)
        yield


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """What a process keeps of the catalog belongs to a test that has been rolled back."""
    organizations.restore()
    actions.clear_source()  # a command of the test before
    # A test that reads all addresses leaves exports open that are not read to their end.
    export._slots = export.ExportSlots()


@pytest.fixture(scope="session")
def _anchors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("anchors")


@pytest.fixture(autouse=True)
def _published_apart(request: pytest.FixtureRequest, _anchors: Path) -> Iterator[None]:
    """What a test publishes that is rolled back speaks of records that are gone afterward: the
    sealer of the product would halt their log."""
    if "committed" in request.fixturenames:
        yield
        return
    usual = django_settings.ANCHORS_DIR
    django_settings.ANCHORS_DIR = _anchors / uuid4().hex
    yield
    django_settings.ANCHORS_DIR = usual


@pytest.fixture
def committed(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    """For what other processes or threads must see: nothing is rolled back.

    Such a test works in an organization of its own, which is taken away later. What it leaves
    waiting is cancelled. Both where no product runs that would work on it.
    """
    used = request.config.stash.setdefault(USED, [])
    with django_db_blocker.unblock():
        earlier = set(Organization.objects.values_list("pk", flat=True))
        yield
        used += set(Organization.objects.values_list("pk", flat=True)) - earlier
        if RUNNING not in request.config.stash:
            left = Execution.objects.filter(status__in=(Status.PENDING, Status.RUNNING))
            left.update(status=Status.CANCELLED, completed_at=Now(), lease_until=None)
            if len(used) >= MANY_USED:
                organizations.remove(used)
                used.clear()
        for connection in connections.all():
            connection.close()


@pytest.fixture
def without_workers(request: pytest.FixtureRequest, committed: None) -> Iterator[None]:
    """What such a test leaves waiting, no worker of the product takes, and no later test."""
    running = request.config.stash.get(RUNNING, None)
    earlier = set(Organization.objects.values_list("pk", flat=True))
    with stopped(running) if running else nullcontext():
        yield
        left = Execution.objects.filter(status=Status.PENDING).exclude(organization__in=earlier)
        left.update(status=Status.CANCELLED, completed_at=Now())


@pytest.fixture
def organization(request: pytest.FixtureRequest) -> Organization:
    """An Enterprise organization with the built-in tools, as if no test had used it before. One of
    its own for a test that is `committed`, or marked `own_organization`."""
    committed = "committed" in request.fixturenames
    request.getfixturevalue("committed" if committed else "db")
    if committed or request.node.get_closest_marker("own_organization"):
        return factories.organization(f"org-{uuid4().hex[:12]}")
    return organizations.ready()


@pytest.fixture
def agent(organization: Organization) -> Agent:
    return factories.agent(organization, groups=["default", "read-only", "write"])


@pytest.fixture
def admin_user(organization: Organization) -> User:
    """A superuser; overrides pytest-django's, which knows nothing of organizations."""
    return factories.superuser(organization)


@pytest.fixture
def admin_client(admin_user: User) -> Client:
    client = Client()
    client.force_login(admin_user, backend="tools.accounts.login.login.PeopleBackend")
    return client


@pytest.fixture
def api(agent: Agent) -> Api:
    """The API as the agent calls it, in this process."""
    return Api(factories.token(agent.service_account))


@pytest.fixture
def admin_api(admin_user: User) -> Api:
    return Api(factories.token(admin_user, scopes=["read", "execute", "manage"]))


@pytest.fixture
def files(organization: Organization) -> Callable[[str, bytes], None]:
    """Puts a file into the organization's workspace."""
    return lambda path, content: factories.workspace_file(organization, path, content)


@pytest.fixture
def loopback_is_open(settings: Any) -> None:
    """For stubs of what is outside."""
    settings.EGRESS_ALLOW_PRIVATE = ["127.0.0.1/32"]


@pytest.fixture
def asks(organization: Organization) -> Tool:
    """The tool `echo`, which runs only when a person has agreed."""
    return factories.tool(organization, requires_confirmation=True)


@pytest.fixture
def confirmation(agent: Agent, asks: Tool) -> Confirmation:
    """A call of it that waits for a person."""
    return call_awaiting_approval(agent)
