"""A call that needs a person: an agent asks and waits, people decide in their own sessions."""

import http.cookiejar
import json
import re
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests import factories
from tests.journeys.client import Http
from tests.tools.approval_requests import codes
from tests.tools.shapes import check_error, check_execution
from tools.models import Execution


class Browser:
    """A person at the running crib: one session, its cookies, and forms as they stand."""

    def __init__(self, url, user, password="correct horse"):
        self.url = url
        cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
        self._cookies = cookies
        self.page("/login/")
        self.send("/login/", username=user.username, password=password)

    def page(self, path):
        return self._open(urllib.request.Request(self.url + path))[1]

    def send(self, path, **fields):
        form = {**fields, "csrfmiddlewaretoken": self._csrf()}
        body = urllib.parse.urlencode(form).encode()
        return self._open(urllib.request.Request(self.url + path, body, self._origin()))

    def api(self, method, path, body=None):
        content = None if body is None else json.dumps(body).encode()
        headers = {
            **self._origin(), "X-CSRFToken": self._csrf(), "Content-Type": "application/json",
        }  # fmt: skip
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}", content, headers, method=method
        )
        status, text = self._open(request)
        return status, json.loads(text)

    def _csrf(self):
        return next(cookie.value for cookie in self._cookies if cookie.name == "toolcrib_csrf")

    def _origin(self):
        return {"Origin": self.url}

    def _open(self, request):
        try:
            with self._opener.open(request, timeout=40) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def admin_browser(crib, committed, admin_user):
    return Browser(crib.url, admin_user)


@pytest.fixture
def asks(committed, organization):
    return factories.tool(organization, requires_confirmation=True)


def request_echo(http):
    answer = http.execute("echo", {"text": "x"}, options={"wait_s": 30})
    body = answer.json()
    assert (answer.status_code, body["status"]) == (202, "RequiresConfirmation")
    assert answer.headers["Location"] == f"/api/v1/executions/{body['execution_id']}"
    return body


@pytest.mark.part("walks")
def test_an_agent_asks_a_person_agrees_and_it_runs_once(http, asks, admin_browser):
    body = request_echo(http)
    waited = []
    address = f"/api/v1/executions/{body['execution_id']}?wait_s=30"
    agent = threading.Thread(target=lambda: waited.append(http("GET", address)))
    agent.start()
    identifier = body["confirmation"]["id"]
    status, shown = admin_browser.api("GET", f"/confirmations/{identifier}")
    assert (status, shown["parameters"]) == (200, {"text": "x"})
    path = f"/confirmations/{identifier}/approve"
    word = {"bound_hash": shown["bound_hash"], "reason": "Fine."}
    assert admin_browser.api("POST", path, word)[0] == 200
    agent.join()
    done = check_execution(waited[0].json(), "Success")
    assert done["output"] == {"echo": {"text": "x"}} and done["confirmation"]["approvals"] == 1
    assert admin_browser.api("POST", path, word)[0] == 409
    execution = Execution.objects.get(pk=body["execution_id"])
    assert execution.attempt == 1 and codes(execution).count("TOOL.START") == 1


def test_a_person_refuses_on_the_page_and_the_agent_hears_why(http, asks, admin_browser):
    body = request_echo(http)
    identifier = body["confirmation"]["id"]
    page = admin_browser.page("/confirmations/")
    bound = re.search(rf'name="hash.{identifier}" value="(\w+)"', page)[1]
    fields = {
        "one": f"reject {identifier}",
        f"hash.{identifier}": bound,
        f"reason.{identifier}": "Not on a Friday.",
    }
    with http.events(f"/api/v1/executions/{body['execution_id']}/events") as events:
        assert next(events)["event"] == "Warning"
        status, after = admin_browser.send("/confirmations/decide", **fields)
        assert status == 200 and "echo was refused." in after
        assert "Not on a Friday." in next(events)["data"]["message"]
    execution = http("GET", f"/api/v1/executions/{body['execution_id']}").json()
    assert (execution["status"], execution["error_code"]) == (
        "PermissionDenied",
        "confirmation_rejected",
    )


@pytest.mark.part("walks")
def test_neither_the_agent_nor_an_administrators_token_can_agree(http, admin, asks):
    body = request_echo(http)
    path = f"/api/v1/confirmations/{body['confirmation']['id']}"
    check_error(http("GET", path), 403)
    bound = {"bound_hash": admin("GET", path).json()["bound_hash"]}
    check_error(http("POST", f"{path}/approve", bound), 403)
    check_error(admin("POST", f"{path}/approve", bound), 403, "session_required")
    assert Execution.objects.get(pk=body["execution_id"]).status == "RequiresConfirmation"


@pytest.mark.part("walks")
def test_an_agent_that_was_suspended_meanwhile_gets_nothing(crib, http, asks, admin, agent):
    person = factories.superuser(agent.organization)
    body, browser = request_echo(http), Browser(crib.url, person)
    identifier = body["confirmation"]["id"]
    shown = browser.api("GET", f"/confirmations/{identifier}")[1]
    admin("POST", f"/api/v1/agents/{agent.slug}/suspend")
    path = f"/confirmations/{identifier}/approve"
    status, error = browser.api("POST", path, {"bound_hash": shown["bound_hash"]})
    assert (status, error["code"]) == (409, "confirmation_void")
    assert Execution.objects.get(pk=body["execution_id"]).started_at is None


@pytest.mark.part("walks")
def test_a_token_of_a_person_is_a_caller_like_any_other(crib, asks, admin_user):
    own = Http(crib.url, factories.token(admin_user, scopes=["read", "execute", "manage"]))
    body = request_echo(own)
    browser = Browser(crib.url, admin_user)
    shown = browser.api("GET", f"/confirmations/{body['confirmation']['id']}")[1]
    path = f"/confirmations/{shown['id']}/approve"
    status, error = browser.api("POST", path, {"bound_hash": shown["bound_hash"]})
    assert (status, error["code"]) == (403, "own_call")
