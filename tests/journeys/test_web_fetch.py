"""`web_fetch` over the API: through the pipeline, sandbox and broker, to a server on loopback."""

from collections.abc import Iterator
from typing import Any

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.journeys.client import Answer, Http
from tests.stubs.web import Reply, Web, serving
from tests.tools.builtin.isolated.conftest import ARTICLE, SENTENCES, page
from tests.tools.shapes import check_error, check_execution

HTML = [("Content-Type", "text/html; charset=utf-8")]


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as one:
        one.replies["/a"] = Reply(headers=HTML, body=ARTICLE.encode())
        yield one


@pytest.fixture
def reader(crib: Any, committed: None, organization: Any, admin: Http, web: Web) -> Http:
    """An agent that may fetch, in an organization that allows the stub and nothing else."""
    allowed = [{"host": "127.0.0.1", "ports": [web.port]}]
    place = f"/api/v1/organizations/{organization.slug}"
    assert admin("PATCH", place, {"allowed_hosts": allowed}).status_code == 200
    made = factories.agent(organization, groups=["network"])
    return Http(crib.url, factories.token(made.service_account))


def fetched(http: Http, url: str, **parameters: Any) -> Answer:
    return http.execute("web_fetch", {"url": url, **parameters}, group=["network"])


def refused(http: Http, url: str, *codes: str) -> dict[str, Any]:
    done = check_execution(fetched(http, url).json(), "Failed")
    assert done["error_code"] in codes, done
    return done


@pytest.mark.part("walks")
@pytest.mark.parametrize(
    ("form", "part"),
    [("text", SENTENCES), ("markdown", "# A bridge reopens"), ("raw", "<!DOCTYPE html>")],
)
def test_a_page_of_an_allowed_host_is_fetched(reader, web, form, part):
    done = check_execution(fetched(reader, web.url("/a"), format=form).json(), "Success")
    assert part in done["output"]["content"]
    assert (done["output"]["status"], done["output"]["url"]) == (200, web.url("/a"))
    assert done["metadata"]["execution_metrics"]["network_requests"] == 1


@pytest.mark.part("walks")
def test_redirects_count_as_requests_of_their_own(reader, web):
    web.replies["/moved"] = Reply(301, [("Location", "/a")])
    done = check_execution(fetched(reader, web.url("/moved")).json(), "Success")
    assert (done["output"]["redirects"], done["output"]["url"]) == (1, web.url("/a"))
    assert done["metadata"]["execution_metrics"]["network_requests"] == 2


def test_a_host_that_is_not_on_the_list_is_refused_counted_and_on_record(reader, web):
    url = web.url("/secret?token=c4nary", host="localhost")
    done = refused(reader, url, "HOST_NOT_ALLOWED")
    assert done["metadata"]["execution_metrics"]["network_requests"] == 1
    assert web.connections == 0
    found = AuditRecord.objects.filter(execution_id=done["execution_id"], code="TOOL.END")
    assert "HOST_NOT_ALLOWED" in str(list(found.values()))


def test_a_redirect_off_the_list_is_refused_and_names_no_path(reader, web):
    target = web.url("/secret-path?token=c4nary", host="localhost")
    web.replies["/moved"] = Reply(302, [("Location", target)])
    done = refused(reader, web.url("/moved"), "HOST_NOT_ALLOWED")
    assert "localhost" in done["error_message"] and "secret-path" not in done["error_message"]
    assert [seen.target for seen in web.seen] == ["/moved"]


@pytest.mark.part("walks")
def test_an_organization_that_allows_no_host_reaches_none(crib, committed, organization, web):
    made = factories.agent(organization, groups=["network"])
    http = Http(crib.url, factories.token(made.service_account))
    refused(http, web.url("/a"), "HOST_NOT_ALLOWED")
    assert web.connections == 0


@pytest.mark.part("walks")
def test_an_agent_without_the_group_has_no_such_tool(http, web):
    check_error(fetched(http, web.url("/a")), 403, "group_not_granted")
    assert web.connections == 0


COSTLY = {
    "too deep": "<div>x" * 100_000,
    "too many attributes": f"<p {' '.join(f'a{n}=1' for n in range(90_000))}>x",
    "unclosed formatting": "<b><i><u></b>" * 50_000,
}


@pytest.mark.part("walks")
@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY)
def test_a_page_made_to_be_costly_is_answered_as_visible_text(reader, web, body):
    web.replies["/costly"] = Reply(headers=HTML, body=page(body).encode())
    done = check_execution(fetched(reader, web.url("/costly")).json(), "Success")
    assert done["output"]["extraction"] == "page"


@pytest.mark.part("walks")
def test_the_largest_answer_comes_back_whole(reader, web):
    body = bytes(range(256)) * (10 * 4096)
    web.replies["/a"] = Reply(headers=[("Content-Type", "image/png")], body=body)
    done = fetched(reader, web.url("/a"), format="raw", max_bytes=len(body)).json()
    stored = check_execution(done, "Success")["stored_output"]["href"]
    assert reader("GET", stored).json()["size_bytes"] == len(body)
    assert refused(reader, web.url("/a"), "TOO_LARGE")


@pytest.mark.parametrize(
    "parameters", [{"format": "pdf"}, {"max_bytes": 0}, {"max_bytes": 1 << 24}]
)
def test_what_cannot_be_asked_for_is_no_call(reader, web, parameters):
    check_error(fetched(reader, web.url("/a"), **parameters), 400, "invalid_parameters")
    assert web.connections == 0
