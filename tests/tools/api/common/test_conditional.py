"""Concurrent changes: entity tags and `If-Match`, atomic requests, and unique names."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.conditions import until
from tests.savepoints import read_catalogs, rolled_back
from tests.tools.api.test_authorization_matrix import ADDRESSES, WRITTEN, Side, methods_of
from tests.tools.shapes import check_error
from tools.catalog.registry import registry
from tools.models import (
    Agent,
    AllowanceUse,
    McpAuthorization,
    McpOAuthClient,
    McpServer,
    Organization,
    Tool,
    ToolGroup,
    ToolService,
    User,
)

CHANGES = sorted(
    (name, method)
    for name in ADDRESSES
    if name.startswith("api-")
    for method in methods_of(name) & {"put", "patch", "delete"}
)
# No answer shows these alone, so a client can only send `*`.
UNREAD = {
    "api-agent-token", "api-grant", "api-mcp-authorization", "api-mcp-credential",
    "api-mcp-oauth-client", "api-token",
}  # fmt: skip
ACTIONS = {
    "api-enable": None,
    "api-disable": None,
    "api-restore": None,
    "api-suspend": {},
    "api-channel-key": None,
    "api-service-approve": {"digest": "sha256:0"},
    "api-service-reject": {"digest": "sha256:0"},
    "api-change-approve": {"digest": "sha256:0"},
    "api-change-reject": {"digest": "sha256:0"},
    "api-agent-token-rotate": {},
    "api-token-rotate": {},
    "api-signing-key-distrust": None,
    "api-channel-test": {},
    "api-mcp-refresh": {},
    "api-mcp-import": {"tools": []},
}
POSTS = {name for name in ADDRESSES if name.startswith("api-") and "post" in methods_of(name)}
STALE = '"0000"'


class World:
    """An organization with one row of everything, and a client that may change all of them."""

    def __init__(self) -> None:
        organization = factories.organization(f"org-{uuid4().hex[:12]}")
        self.side = Side(organization, "here")
        factories.tool(organization, "spare", group=["desk-here"])
        self.chief = factories.superuser(organization)
        self.api = manager_api(self.chief)
        factories.token(self.chief)
        ToolGroup.objects.create(organization=organization, name="spare")
        for name in POSTS:
            self.side.place(name)  # some rows are created on first use

    def path(self, name: str) -> str:
        place = self.side.place(name)
        spare = {"api-tool": "spare", "api-group": "spare"}
        if name in spare:
            place = {"name": spare[name]}
        if name in {"api-token", "api-token-rotate"}:
            place = {"token_id": self.chief.tokens.latest("pk").pk}
        return reverse(name, kwargs=place).removeprefix("/api/v1")

    def tag(self, name: str) -> str:
        return "*" if name in UNREAD else self.api.get(self.path(name)).headers["ETag"]

    def change(self, name: str, method: str, tag: str) -> HttpResponse:
        body = None if method == "delete" else self.body(name, method)
        return getattr(self.api, method)(self.path(name), body, **{"If-Match": tag})

    def body(self, name: str, method: str) -> Any:
        """A body that is accepted; a new route needs one."""
        said = {"description": "Other words."}
        chain = self.api.get(self.path("api-chain")).json() if name == "api-chain" else {}
        written = {key: chain.get(key) for key in ("name", "parameters", "steps", "group")}
        bodies: dict[tuple[str, str], Any] = {
            ("api-agent", "patch"): said,
            ("api-chain", "put"): written | said,
            ("api-channel", "patch"): {"most_an_hour": 7},
            ("api-confirmation-rule", "patch"): {"approvals_needed": 2},
            ("api-confirmation-rule", "put"): {"tool": "write_file", "approvals_needed": 2},
            ("api-content-schema", "put"): {"document": {"type": "array"}},
            ("api-egress-credential", "patch"): {"header": "X-Other"},
            ("api-egress-credential", "put"): {"header": "X-Other", "value": "new"},
            ("api-group", "patch"): said,
            ("api-group", "put"): said,
            ("api-mcp-credential", "put"): {"headers": {"X-Key": "secret"}},
            ("api-mcp-oauth-client", "put"): {"client_id": "another"},
            ("api-mcp-server", "patch"): {"check_every_s": 77},
            ("api-organization", "patch"): {"name": "Another"},
            ("api-sandbox-profile", "patch"): said,
            ("api-sandbox-profile", "put"): said,
            ("api-tier", "patch"): {"max_custom_tools": 12},
            ("api-tool", "patch"): said,
            ("api-tool", "put"): factories.definition("spare", group=["desk-here"], **said),
            ("api-tool-service", "patch"): {"default_groups": ["desk-here"]},
        }
        return bodies[name, method]


def manager_api(user: User) -> Api:
    return Api(factories.token(user, scopes=["read", "execute", "manage"]))


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """Created once for the tests of this module; each request is rolled back."""
    with django_db_blocker.unblock():
        made = World()
        read_catalogs(made.side.organization)
        yield made
        connection.close()


@pytest.fixture
def tried(world: World, django_db_blocker: Any) -> Iterator[World]:
    with django_db_blocker.unblock(), rolled_back():
        yield world


def writes(queries: CaptureQueriesContext) -> list[str]:
    found = [query["sql"] for query in queries if WRITTEN.search(query["sql"])]
    return [sql for sql in found if "last_used_at" not in sql]


@pytest.mark.parametrize(("name", "method"), CHANGES)
def test_a_change_of_what_is_another_by_now_changes_nothing(tried, name, method):
    with CaptureQueriesContext(connection) as queries:
        answer = tried.change(name, method, STALE)
    check_error(answer, 412, "changed_meanwhile")
    assert writes(queries) == []


@pytest.mark.parametrize(("name", "method"), CHANGES)
def test_a_change_of_what_is_as_it_was_read_is_made(tried, name, method):
    read = tried.tag(name)
    answer = tried.change(name, method, read)
    assert answer.status_code == (204 if method == "delete" else 200), answer.content
    if method != "delete":
        assert answer.headers["ETag"] not in {read, STALE}
        if name not in UNREAD:
            assert answer.headers["ETag"] == tried.tag(name)
        check_error(tried.change(name, method, STALE), 412, "changed_meanwhile")
        assert tried.change(name, method, answer.headers["ETag"]).status_code == 200


# Secrets that are sent again: sealed values are not compared.
SEALED = {
    ("api-egress-credential", "put"), ("api-mcp-oauth-client", "put"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "method"), [one for one in CHANGES if one[1] != "delete" and one not in SEALED]
)
def test_a_change_that_changes_nothing_leaves_nothing(tried, name, method):
    """A client that lost the answer sends it again; otherwise it would be recorded twice."""
    made = tried.change(name, method, tried.tag(name))
    before, deeds = made.headers["ETag"], records_of(tried).count()
    again = tried.change(name, method, before)
    assert (again.status_code, again.headers["ETag"]) == (200, before)
    assert records_of(tried).count() == deeds


def test_everything_else_that_can_be_changed_is_read_with_its_tag():
    changed = {name for name, _ in CHANGES}
    assert {name for name in changed if "get" not in methods_of(name)} == UNREAD


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_on_what_is_another_by_now_does_nothing(tried, name):
    with CaptureQueriesContext(connection) as queries:
        answer = tried.api.post(tried.path(name), ACTIONS[name], **{"If-Match": STALE})
    check_error(answer, 412, "changed_meanwhile")
    assert writes(queries) == []


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize("name", sorted(POSTS - ACTIONS.keys()))
def test_where_nothing_has_a_tag_a_precondition_is_refused(tried, name, header):
    """Each unsafe route of the resolver compares the tag, or refuses the header."""
    with CaptureQueriesContext(connection) as queries:
        answer = tried.api.post(tried.path(name), {}, **{header: "*"})
    assert check_error(answer, 400, "malformed")["details"] == {"header": header}
    assert writes(queries) == []


def test_what_only_reads_ignores_it(tried):
    assert tried.api.get("/tools/spare", **{"If-Match": STALE}).status_code == 200


def test_what_was_decided_or_distrusted_meanwhile_is_not_decided(tried):
    for name in ("api-change", "api-signing-key"):
        path = tried.path(name)
        read = tried.api.get(path)
        again = tried.api.get(path, **{"If-None-Match": read.headers["ETag"]})
        assert (read.status_code, again.status_code) == (200, 304)
    path, read = tried.path("api-signing-key"), tried.tag("api-signing-key")
    first, second = (tried.api.post(f"{path}/distrust", **{"If-Match": read}) for _ in range(2))
    assert first.status_code == 200
    assert first.headers["ETag"] == tried.tag("api-signing-key") != read
    check_error(second, 412, "changed_meanwhile")


def test_an_action_takes_the_tag_that_was_read(tried):
    read = tried.api.get("/tools/spare").headers["ETag"]
    answer = tried.api.post("/tools/spare/disable", **{"If-Match": read})
    assert answer.status_code == 200
    assert answer.headers["ETag"] == tried.api.get("/tools/spare").headers["ETag"] != read


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tools", factories.definition("fresh")),
        ("/groups", {"name": "fresh"}),
        ("/agents", {"slug": "fresh"}),
        ("/organizations", {"slug": f"org-{uuid4().hex[:12]}", "name": "Fresh", "tier": "Core"}),
        ("/sandbox-profiles", {"name": "fresh"}),
        ("/content-schemas", {"name": "fresh", "document": {"type": "object"}}),
        ("/egress-credentials", {"name": "fresh", "header": "X-Key", "value": "x"}),
        ("/channels", {"name": "fresh", "kind": "inbox"}),
        ("/tool-services", {"id": "fresh", "request_queue": "fq", "response_queue": "fr"}),
        ("/mcp-servers", {"name": "fresh", "url": "https://mcp.example/mcp"}),
        ("/confirmation-rules", {"name": "fresh", "tool": "write_file"}),
    ],
)
def test_what_is_made_has_its_tag_and_its_name_once(tried, path, body):
    made = tried.api.post(path, body)
    assert made.status_code == 201, made.content
    name = body.get("name", body.get("id")) if "slug" not in body else body["slug"]
    assert made.headers["ETag"] == tried.api.get(f"{path}/{name}").headers["ETag"]
    again = tried.api.post(path, body)
    assert again.status_code == 409
    assert again.json()["code"].endswith("_exists")


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    ["", "abc", '"', 'W/"', '"a" "b"', '"a";"b"', "*, *", '*, "a"', 'w/"a"', '"a\tb"', ",", "''"],
)
@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
def test_a_header_that_is_no_list_of_tags_is_refused(tried, name, header):
    answer = tried.api.patch("/groups/spare", {"description": "x"}, **{name: header})
    check_error(answer, 400, "malformed")
    assert tried.api.get("/groups/spare").json()["description"] == ""


def test_a_weak_tag_never_matches(tried):
    read = tried.api.get("/groups/spare").headers["ETag"]
    answer = tried.api.patch("/groups/spare", {"description": "x"}, **{"If-Match": f"W/{read}"})
    check_error(answer, 412, "changed_meanwhile")


def test_one_tag_of_several_is_enough(tried):
    read = tried.api.get("/groups/spare").headers["ETag"]
    several = f' ,"x,y" , {read},W/"z", '
    answer = tried.api.patch("/groups/spare", {"description": "x"}, **{"If-Match": several})
    assert answer.status_code == 200


def test_any_tag_holds_where_the_thing_is_there(tried):
    assert tried.api.delete("/groups/spare", **{"If-Match": "*"}).status_code == 204
    check_error(tried.api.delete("/groups/spare", **{"If-Match": "*"}), 404)


def test_what_a_put_would_make_matches_no_tag(tried):
    McpOAuthClient.objects.all().delete()
    path = tried.path("api-mcp-oauth-client")
    check_error(tried.api.put(path, {"client_id": "x"}, **{"If-Match": "*"}), 412)
    made = tried.api.put(path, {"client_id": "x"}, **{"If-None-Match": "*"})
    assert made.status_code == 200
    again = tried.api.put(path, {"client_id": "y"}, **{"If-None-Match": "*"})
    check_error(again, 412, "changed_meanwhile")


def test_who_may_not_change_it_is_refused_first(tried):
    unpermitted = manager_api(factories.person(tried.side.organization))
    answer = unpermitted.patch("/groups/spare", {"description": "x"}, **{"If-Match": STALE})
    check_error(answer, 403, "not_permitted")


def test_what_a_client_has_already_is_not_sent_again(tried):
    read = tried.api.get("/tools/spare").headers["ETag"]
    same = tried.api.get("/tools/spare", **{"If-None-Match": f'"x", W/{read}'})
    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", read)
    tried.api.patch("/tools/spare", {"description": "Other words."})
    assert tried.api.get("/tools/spare", **{"If-None-Match": read}).status_code == 200


def test_what_shows_health_is_always_sent(tried):
    path = tried.path("api-mcp-server")
    read = tried.api.get(path).headers["ETag"]
    assert tried.api.get(path, **{"If-None-Match": read}).status_code == 200


# --- what a tag covers ----------------------------------------------------------------------------


def test_a_secret_that_changes_changes_the_tag(tried):
    path = tried.path("api-mcp-server")
    first = tried.api.patch(path, {"headers": {"X-Key": "one-secret"}})
    second = tried.api.patch(path, {"headers": {"X-Key": "two-secret"}})
    assert first.json() == second.json()
    assert first.headers["ETag"] != second.headers["ETag"]


def test_a_client_secret_that_changes_changes_the_tag(tried):
    path = tried.path("api-mcp-oauth-client")
    first, second = (
        tried.api.put(path, {"client_id": "x", "client_secret": secret}) for secret in "ab"
    )
    assert first.json() == second.json()
    assert first.headers["ETag"] != second.headers["ETag"]


def test_a_tag_depends_on_the_secret_key_of_the_installation(tried, settings):
    here = tried.api.get("/groups/spare").headers["ETag"]
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "x" * 60
    api = manager_api(tried.chief)
    assert api.get("/groups/spare").headers["ETag"] != here


def test_health_and_use_change_no_tag(tried):
    names = ("api-mcp-server", "api-tool-service", "api-agent")
    tried.api.patch(tried.path("api-agent"), {"budget": {"amount": "10", "period": "day"}})
    before = [tried.tag(name) for name in names]
    McpServer.objects.update(last_seen_at=timezone.now(), last_error="", snapshot=[])
    ToolService.objects.update(last_seen=timezone.now())
    for allowance in tried.side.agent.allowances.all():
        AllowanceUse.objects.create(allowance=allowance, starts_on=timezone.now().date(), used=3)
    assert [tried.tag(name) for name in names] == before


@pytest.mark.parametrize("name", ["api-tool", "api-chain"])
def test_what_follows_from_another_change_refuses_none(tried, name):
    """The effective isolation level follows from the organization and the profile."""
    organization, path = tried.side.organization, tried.path(name)
    read = tried.tag(name)
    changed = tried.api.patch(
        f"/organizations/{organization.slug}", {"minimum_isolation": "Restricted"}
    )
    assert changed.status_code == 200, changed.json()
    assert tried.api.get(path).json()["effective_isolation"] == "Restricted"
    assert tried.api.get(path, **{"If-None-Match": read}).status_code == 200
    assert tried.change(name, "delete", read).status_code == 204


def test_a_refreshed_authorization_is_the_same(tried):
    one = McpAuthorization.objects.get(server__organization=tried.side.organization)
    path = tried.path("api-mcp-authorization")
    McpAuthorization.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    check_error(tried.api.delete(path, **{"If-Match": STALE}), 412)
    assert McpAuthorization.objects.filter(pk=one.pk).exists()


# --- atomic requests ------------------------------------------------------------------------------


def records_of(tried):
    return AuditRecord.objects.filter(organization=tried.side.organization.slug)


def test_a_change_of_an_agent_is_kept_as_a_whole_or_not_at_all(tried):
    path, before = tried.path("api-agent"), records_of(tried).count()
    read = tried.api.get(path)
    body = {
        "groups": ["default"],
        "budget": {"amount": "10", "period": "day"},
        "max_in_flight": 0,
    }
    assert tried.api.patch(path, body).status_code == 400
    assert tried.api.get(path).json() == read.json()
    assert records_of(tried).count() == before


def test_a_change_of_an_organization_is_kept_as_a_whole_or_not_at_all(tried):
    path, before = tried.path("api-organization"), records_of(tried).count()
    read = tried.api.get(path).json()
    mark = tried.api.post(f"{path}/tier/preview", {"tier": "Core"}).json()["preview_mark"]
    body = {"tier": "Core", "preview_mark": mark, "name": "Another", "time_zone": "Nowhere/Land"}
    before = records_of(tried).count()
    assert tried.api.patch(path, body).status_code == 400
    assert tried.api.get(path).json() == read
    assert records_of(tried).count() == before


def test_a_change_of_a_tool_is_kept_as_a_whole_or_not_at_all(tried):
    before, count = tried.api.get("/tools/spare").json(), records_of(tried).count()
    body = {"description": "Other words.", "critical": True, "max_concurrency": -1}
    assert tried.api.patch("/tools/spare", body).status_code == 400
    assert tried.api.get("/tools/spare").json() == before
    assert records_of(tried).count() == count
    tool = Tool.objects.get(organization=tried.side.organization, name="spare")
    assert tool.versions.count() == 1


def test_a_new_agent_whose_grants_are_refused_is_not_there(tried):
    before = records_of(tried).count()
    answer = tried.api.post("/agents", {"slug": "fresh", "tools": ["nowhere"]})
    assert answer.status_code in {400, 404}
    assert not Agent.objects.filter(slug="fresh", organization=tried.side.organization).exists()
    assert records_of(tried).count() == before


@pytest.mark.parametrize("path", ["/tools/spare", "/groups/spare"])
def test_a_change_is_not_in_the_catalog_of_a_process_before_it_is_committed(tried, path):
    tried.api.get(path)
    known = registry._snapshots[tried.side.organization.pk]
    answer = tried.api.patch(path, {"description": "Other words."})
    assert answer.json()["description"] == "Other words."
    assert registry._snapshots[tried.side.organization.pk] is known


# --- concurrency ----------------------------------------------------------------------------------


def at_once(count: int, user: User, work: Any, *, behind: Organization | None = None) -> list[Any]:
    """What `work` returns in as many threads, each with its own client. `behind` is an organization
    whose row stays locked until all of them wait for a lock."""
    answers: list[HttpResponse] = []
    start = threading.Barrier(count)
    token = factories.token(user, scopes=["read", "execute", "manage"])

    def run(number: int) -> None:
        api = Api(token)
        start.wait()
        answers.append(work(api, number))
        connection.close()

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    with transaction.atomic():
        if behind is not None:
            Organization.objects.select_for_update(no_key=True).get(pk=behind.pk)
        [thread.start() for thread in threads]
        if behind is not None:
            until(lambda: waiting_behind_us() == count)
    [thread.join() for thread in threads]
    return answers


def waiting_behind_us() -> int:
    """How many connections wait for a lock of this one, directly or indirectly."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE waiting(pid) AS (SELECT pg_backend_pid() UNION"
            " SELECT pg_locks.pid FROM pg_locks JOIN waiting"
            " ON NOT granted AND waiting.pid = ANY(pg_blocking_pids(pg_locks.pid)))"
            " SELECT count(*) - 1 FROM waiting"
        )
        return int(cursor.fetchone()[0])


@pytest.fixture
def chief(committed: None, organization: Organization) -> User:
    return factories.superuser(organization)


@pytest.mark.parametrize("kind", ["group", "tool", "agent", "organization"])
def test_of_two_writers_with_one_tag_one_succeeds(organization, chief, kind):
    factories.tool(organization, "spare", group=["spare"])
    factories.agent(organization, "spare")
    path, field = {
        "group": ("/groups/spare", "description"),
        "tool": ("/tools/spare", "description"),
        "agent": ("/agents/spare", "description"),
        "organization": (f"/organizations/{organization.slug}", "name"),
    }[kind]
    read = manager_api(chief).get(path).headers["ETag"]
    answers = at_once(
        2,
        chief,
        lambda api, number: api.patch(path, {field: f"Words {number}"}, **{"If-Match": read}),
        behind=organization,
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412]
    won = next(answer for answer in answers if answer.status_code == 200)
    now = manager_api(chief).get(path)
    assert (now.json()[field], now.headers["ETag"]) == (won.json()[field], won.headers["ETag"])


@pytest.mark.parametrize("kind", ["group", "tool", "agent", "organization", "rule", "channel"])
def test_of_four_that_make_the_same_one_does(organization, chief, kind):
    slug = f"org-{uuid4().hex[:12]}"
    path, body, code = {
        "group": ("/groups", {"name": "fresh"}, "group_exists"),
        "tool": ("/tools", factories.definition("fresh"), "tool_exists"),
        "agent": ("/agents", {"slug": "fresh"}, "agent_exists"),
        "organization": (
            "/organizations", {"slug": slug, "name": "Fresh", "tier": "Core"},
            "organization_exists",
        ),
        "rule": (
            "/confirmation-rules", {"name": "fresh", "tool": "write_file"},
            "confirmation_rule_exists",
        ),
        "channel": ("/channels", {"name": "fresh", "kind": "inbox"}, "channel_exists"),
    }[kind]  # fmt: skip
    behind = None if kind == "organization" else organization  # it locks no organization's row
    answers = at_once(4, chief, lambda api, number: api.post(path, body), behind=behind)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    assert {answer.json().get("code") for answer in answers} == {None, code}


def test_what_was_taken_away_meanwhile_is_not_changed(organization, chief):
    """The second request waits for the deletion by the first."""
    factories.tool(organization, "spare", group=["spare"])
    read = manager_api(chief).get("/tools/spare").headers["ETag"]
    answers = at_once(
        2,
        chief,
        lambda api, number: api.delete("/tools/spare", **{"If-Match": read}),
        behind=organization,
    )
    assert sorted(answer.status_code for answer in answers) == [204, 404]
