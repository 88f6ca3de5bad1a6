"""`GET /executions/{id}/output` returns all of it or a range to callers who may read the
execution."""

import hashlib
import json

import pytest

from tests import factories
from tests.api import Api
from tools.api.executions import outputs as views
from tools.execution import outputs
from tools.models import Execution, StoredOutput

pytestmark = pytest.mark.usefixtures("committed", "crib")


def gave(agent, output, **fields):
    """A completed execution whose output is stored as in production."""
    factories.tool(agent.organization)
    execution = factories.execution(agent)
    stored = outputs.pack_output(output)
    outputs.store_output(execution.organization_id, stored)
    factories.end_execution(
        execution, output=stored.output, output_digest=stored.digest, output_type=stored.type,
        output_bytes=stored.size, **fields,
    )  # fmt: skip
    return f"/executions/{execution.pk}/output"


def body(response):
    content = b"".join(response.streaming_content)
    response.close()
    return content


@pytest.mark.parametrize("most", [1_000, 1_000_000])
@pytest.mark.parametrize(
    ("output", "kind"),
    [("é" * 3_000, "text/plain; charset=utf-8"), ({"a": ["é" * 3_000]}, "application/json")],
)
def test_it_comes_with_its_own_type_wherever_it_lies(api, agent, settings, output, kind, most):
    settings.OUTPUT_INLINE_BYTES = most
    response = api.get(gave(agent, output))
    content = body(response)
    assert (response.status_code, response["Content-Type"]) == (200, kind)
    assert response["Content-Length"] == str(len(content))
    assert response["ETag"] == f'"sha256:{hashlib.sha256(content).hexdigest()}"'
    assert (content.decode() if kind.startswith("text") else json.loads(content)) == output


def test_nothing_in_it_is_opened_as_a_page(api, agent):
    response = api.get(gave(agent, "<script>alert(1)</script>"))
    assert response["Content-Disposition"].startswith("attachment")
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "private" in response["Cache-Control"]
    body(response)


RANGES = [
    ("bytes=0-9", 0, 10), ("bytes=2990-", 2990, 3000), ("bytes=-5", 2995, 3000),
    ("bytes=2999-9999999", 2999, 3000), ("bytes=-99999", 0, 3000), ("bytes=0-", 0, 3000),
]  # fmt: skip


@pytest.mark.parametrize("most", [1_000, 1_000_000])
def test_a_range_is_that_part(api, agent, settings, most, subtests):
    settings.OUTPUT_INLINE_BYTES = most
    whole = "".join(chr(97 + at % 26) for at in range(3_000))
    path = gave(agent, whole)
    for asked, start, end in RANGES:
        with subtests.test(asked=asked, start=start, end=end):
            response = api.get(path, Range=asked)
            assert body(response).decode() == whole[start:end]
            if (start, end) != (0, 3_000):
                assert response.status_code == 206
                assert response["Content-Range"] == f"bytes {start}-{end - 1}/3000"


NO_RANGES = [
    "bytes=1-2,4-5", "lines=1-2", "bytes=5-2", "bytes=-", "bytes=a-b", "x", "bytes=1-" + "9" * 40,
]  # fmt: skip


def test_what_is_no_single_range_is_answered_with_all_of_it(api, agent, subtests):
    path = gave(agent, "abcdefgh")
    for asked in NO_RANGES:
        with subtests.test(asked=asked):
            response = api.get(path, Range=asked)
            assert (response.status_code, body(response)) == (200, b"abcdefgh")


@pytest.mark.parametrize("asked", ["bytes=8-", "bytes=100-200", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused_with_the_size(api, agent, asked):
    response = api.get(gave(agent, "abcdefgh"), Range=asked)
    assert (response.status_code, response["Content-Range"]) == (416, "bytes */8")
    assert response.json()["code"] == "range_not_satisfiable"


def test_a_range_of_what_has_changed_is_all_of_it(api, agent):
    place = gave(agent, "abcdefgh")
    other = api.get(place, **{"Range": "bytes=0-1", "If-Range": '"sha256:0"'})
    same = api.get(place, **{"Range": "bytes=0-1", "If-Range": other["ETag"]})
    assert (body(other), body(same)) == (b"abcdefgh", b"ab")


def test_who_has_it_already_gets_304(api, agent):
    place = gave(agent, "abcdefgh")
    first = api.get(place)
    body(first)
    response = api.get(place, **{"If-None-Match": f'"x", {first["ETag"]}'})
    assert (response.status_code, response.content) == (304, b"")


def test_any_type_may_be_asked_for(api, agent):
    response = api.get(gave(agent, "abc"), Accept="application/octet-stream")
    assert (response.status_code, body(response)) == (200, b"abc")


def test_an_answer_says_where_a_large_output_is(api, agent, settings):
    settings.OUTPUT_INLINE_BYTES = 1_000
    place = gave(agent, "x" * 3_000)
    answer = api.get(place.removesuffix("/output")).json()
    assert answer["output"] is None
    assert answer["stored_output"]["href"] == f"/api/v1{place}"
    assert answer["stored_output"]["content_type"] == outputs.TEXT
    assert answer["output_expired_at"] is None


def test_anothers_is_not_there(agent, organization):
    place = gave(agent, "abc")
    sibling = factories.agent(organization, groups=["default"])
    assert factories.api(sibling).get(place).status_code == 404
    other = factories.organization(f"{organization.slug}-b")
    assert factories.api(factories.agent(other)).get(place).status_code == 404
    person = factories.person(organization)
    assert Api(factories.token(person)).get(place).status_code == 404


def test_what_is_not_over_or_failed_or_expired_is_distinguished(api, agent):
    factories.tool(agent.organization)
    waiting = factories.execution(agent)
    place = f"/executions/{waiting.pk}/output"
    assert api.get(place).json()["code"] == "execution_not_over"
    factories.end_execution(waiting, status="Failed", error_code="X")
    assert api.get(place).json()["code"] == "output_not_found"


def test_what_expired_says_when(api, agent):
    place = gave(agent, "abc")
    row = Execution.objects.filter(pk=place.split("/")[2])
    row.update(output=None, observation="", output_expired_at=row.get().completed_at)
    answer = api.get(place)
    assert (answer.status_code, answer.json()["code"]) == (410, "output_expired")
    assert answer.json()["details"]["expired_at"]


def test_a_stored_output_that_is_gone_is_no_fault_of_ours(api, agent, settings):
    settings.OUTPUT_INLINE_BYTES = 1_000
    place = gave(agent, "x" * 3_000)
    StoredOutput.objects.filter(organization=agent.organization).delete()
    assert api.get(place).status_code == 410


def test_places_are_given_back_also_unread(api, agent):
    place = gave(agent, "abc")
    for _ in range(views.settings.WAITING_PLACES + 1):
        response = api.get(place)
        assert response.status_code == 200
        response.close()


def test_more_than_a_piece_is_read_piece_by_piece(api, agent):
    whole = "x" * (views.PIECE * 5)
    response = api.get(gave(agent, whole))
    pieces = list(response.streaming_content)
    response.close()
    assert {len(piece) for piece in pieces} == {views.PIECE} and b"".join(pieces).decode() == whole


def test_a_head_says_how_long_it_is(api, agent):
    response = api.head(gave(agent, "abc"))
    assert (response.status_code, response["Content-Length"]) == (200, "3")
    response.close()


def test_slow_readers_of_one_organization_leave_places_to_others(api, agent, monkeypatch):
    monkeypatch.setattr(views, "_slots", views.CallerConcurrency(4))
    place = gave(agent, "abc")
    other = factories.agent(factories.organization(f"{agent.organization.slug}-b"))
    theirs = gave(other, "abc")
    slow = [api.get(place), api.get(place)]
    refused = api.get(place)
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert body(Api(factories.token(other.service_account)).get(theirs)) == b"abc"
    for response in slow:
        response.close()
    assert body(api.get(place)) == b"abc"
