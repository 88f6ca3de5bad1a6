"""`web_fetch` against a web server on loopback, through a real egress broker."""

import base64
import gzip
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.inside.toolcrib import ToolError
from sandbox.spec import IsolationLevel, Limits, Preloaded, SandboxSpec
from tests.sandbox.conftest import GROUPS, Daemon, remove_groups, short_directory
from tests.sandbox.egress.conftest import NAME
from tests.stubs.web import Held, Raw, Reply, serving, zipped
from tests.tools.builtin.isolated.conftest import ARTICLE, SENTENCES, page
from tools.builtin.manifest import DEFINITIONS, ISOLATED
from tools.definitions.schemas import json_schemas

(DEFINITION,) = (one for one in DEFINITIONS if one["name"] == "web_fetch")
PDF = b"%PDF-1.7\n" + bytes(range(256))


def html(text, status=200, kind="text/html; charset=utf-8"):
    return Reply(status, [("Content-Type", kind)], text.encode())


def moved(location, status=302):
    return Reply(status, [("Location", location)])


def failure(fetch, *asked, **parameters):
    with pytest.raises(ToolError) as caught:
        fetch(*asked, **parameters)
    assert re.fullmatch(r"[A-Z][A-Z_]{2,39}", caught.value.code)
    return caught.value


def test_a_page_is_answered_in_the_shape_the_definition_promises(fetch, web):
    web.replies["/a"] = html(ARTICLE)
    found = fetch("/a")
    assert json_schemas.compile_schema(DEFINITION["output_schema"]).flaws(found) == []
    assert SENTENCES in found.pop("content")
    assert found == {
        "url": web.url("/a", host=NAME), "status": 200, "content_type": "text/html",
        "charset": "utf-8", "title": "Bridges & roads in 2031", "encoding": "text",
        "extraction": "main", "size_bytes": len(ARTICLE.encode()), "truncated": False,
        "redirects": 0,
    }  # fmt: skip


def test_markdown_is_answered_when_asked_for(fetch, web):
    web.replies["/a"] = html(ARTICLE)
    assert "# A bridge reopens" in fetch("/a", format="markdown")["content"]


def test_raw_changes_nothing(fetch, web):
    web.replies["/a"] = html(ARTICLE)
    found = fetch("/a", format="raw")
    assert (found["content"], found["extraction"], found["title"]) == (ARTICLE, "none", "")


@pytest.mark.parametrize("form", ["text", "markdown", "raw"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("application/json", '{"a": [1, 2], "b": "<p>ü</p>"}'),
        ("application/problem+json", '{"title": "no"}'),
        ("text/plain; charset=utf-8", "one\n  two <b>three</b>\n"),
        ("text/markdown", "# Title\n"),
        ("text/xml", '<?xml version="1.0"?><a>ü</a>'),
        ("image/svg+xml", "<svg/>"),
        ("", "no type at all"),
        ("application/octet-stream", "text under a wrong name"),
    ],
)
def test_a_text_that_is_no_page_is_left_as_it_is(fetch, web, form, kind, text):
    web.replies["/a"] = html(text, kind=kind) if kind else Reply(body=text.encode())
    found = fetch("/a", format=form)
    assert (found["content"], found["extraction"], found["charset"]) == (text, "none", "utf-8")


@pytest.mark.parametrize("kind", ["", "application/octet-stream", "application/xhtml+xml"])
def test_a_page_is_known_by_its_beginning_or_as_xhtml(fetch, web, kind):
    web.replies["/a"] = html("\n" + ARTICLE, kind=kind) if kind else Reply(body=ARTICLE.encode())
    assert fetch("/a")["extraction"] == "main"


@pytest.mark.parametrize(
    ("kind", "body"),
    [("application/pdf", PDF), ("image/png", b"\x89PNG\r\n"), ("text/html", PDF),
     ("application/octet-stream", b"a\0b"), ("", gzip.compress(b"a", mtime=0)),
     ("video/mp4", b"abc")],
)  # fmt: skip
def test_bytes_that_are_no_text_come_raw_or_not_at_all(fetch, web, kind, body):
    web.replies["/a"] = Reply(headers=[("Content-Type", kind)] if kind else [], body=body)
    assert failure(fetch, "/a").code == failure(fetch, "/a", format="markdown").code == "NOT_TEXT"
    found = fetch("/a", format="raw")
    assert (base64.b64decode(found["content"]), found["encoding"]) == (body, "base64")
    assert (found["charset"], found["size_bytes"]) == (None, len(body))


@pytest.mark.parametrize("status", [404, 410, 429, 500, 503])
def test_the_page_of_an_error_is_a_result_with_its_status(fetch, web, status):
    web.replies["/a"] = html(page("<p>There is no such page."), status)
    found = fetch("/a")
    assert (found["status"], found["content"].strip()) == (status, "There is no such page.")


@pytest.mark.parametrize("status", [200, 204, 304, 404])
def test_an_answer_without_a_body_is_an_empty_text(fetch, web, status):
    web.replies["/a"] = Raw([b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status])
    found = fetch("/a")
    assert (found["status"], found["content"], found["size_bytes"]) == (status, "", 0)


def test_the_charset_of_the_page_is_heard(fetch, web):
    body = "<meta charset=windows-1251><title>Мост</title><p>Мост закрыли в марте.".encode("cp1251")
    web.replies["/a"] = Reply(headers=[("Content-Type", "text/html")], body=body)
    found = fetch("/a")
    assert (found["charset"], found["title"]) == ("windows-1251", "Мост")
    assert "Мост закрыли в марте." in found["content"]


def test_control_characters_of_a_page_do_not_get_out(fetch, web):
    text = "<title>a\0b</title><p>one &#1; two \x00 three \x1b[2J &#xD800; four &#xFFFE;"
    web.replies["/a"] = html(" " * 1024 + text)  # past the binary content check
    found = fetch("/a")
    said = found["title"] + found["content"]
    assert not re.search(r"[\x00-\x08\x0b\x0e-\x1f\ud800-\udfff\ufffe]", said)
    assert "four" in said


def test_it_says_who_asks_and_brings_no_cookies(fetch, web):
    version = tomllib.loads(Path("pyproject.toml").read_text())["project"]["version"]
    cookie = ("Set-Cookie", "a=b; Path=/")
    web.replies["/a"] = Reply(302, [("Location", "/b"), cookie])
    web.replies["/b"] = html(ARTICLE)
    fetch("/a")
    assert [seen.headers["user-agent"] for seen in web.seen] == [f"Toolcrib/{version}"] * 2
    assert not any(
        {"cookie", "authorization", "referer"} & seen.headers.keys() for seen in web.seen
    )


def test_a_packed_page_is_unpacked(fetch, web):
    headers = [("Content-Type", "text/html"), ("Content-Encoding", "gzip")]
    web.replies["/a"] = Reply(headers=headers, body=gzip.compress(ARTICLE.encode()))
    assert SENTENCES in fetch("/a")["content"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_to_the_page(fetch, web, status):
    web.replies |= {"/a": moved("b/c?d=e", status), "/b/c": moved("../f"), "/f": html(ARTICLE)}
    found = fetch("/a")
    assert (found["url"], found["redirects"]) == (web.url("/f", host=NAME), 2)
    assert [seen.target for seen in web.seen] == ["/a", "/b/c?d=e", "/f"]


def test_five_redirects_are_followed_and_no_sixth(fetch, web):
    web.replies |= {f"/{n}": moved(f"/{n + 1}") for n in range(9)} | {"/5": html(ARTICLE)}
    assert fetch("/0")["redirects"] == 5
    web.seen.clear()
    web.replies["/5"] = moved("/6")
    assert failure(fetch, "/0").code == "TOO_MANY_REDIRECTS"
    assert len(web.seen) == 6


def test_a_redirect_off_the_list_is_refused_and_names_the_host_alone(fetch, web, place):
    place.names.answers["evil.example"] = [["127.0.0.1"]]
    with serving() as other:
        web.replies["/a"] = moved(other.url("/secret-path?token=c4nary", host="evil.example"))
        error = failure(fetch, "/a")
        assert other.seen == [] and other.connections == 0
    assert (error.code, "evil.example" in error.message) == ("HOST_NOT_ALLOWED", True)
    assert "secret-path" not in error.message and "c4nary" not in error.message


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1/", "http://169.254.169.254/latest/", "file:///etc/passwd", "gopher://x",
     "http://user:c4nary@good.example/", "http://[::1]/", "http://2130706433/", "http://["],
)  # fmt: skip
def test_no_redirect_leads_inside(fetch, web, location):
    web.replies["/a"] = moved(location)
    error = failure(fetch, "/a")
    assert len(web.seen) == 1 and "c4nary" not in error.message
    assert "latest" not in error.message and "passwd" not in error.message


def test_a_redirect_in_letters_beyond_ascii_is_followed(fetch, web):
    place = b"HTTP/1.1 302 X\r\nLocation: /Br\xc3\xbccke\r\nContent-Length: 0\r\n\r\n"
    web.replies |= {"/a": Raw([place]), "/Br%C3%BCcke": html(ARTICLE)}
    assert fetch("/a")["status"] == 200


def test_a_redirect_to_nowhere_is_an_answer(fetch, web):
    web.replies["/a"] = Reply(302, [("Content-Type", "text/plain")], b"go away")
    assert (fetch("/a")["status"], fetch("/a")["content"]) == (302, "go away")


def test_an_address_in_letters_beyond_ascii_is_asked_for(fetch, web):
    web.replies["/Br%C3%BCcke"] = html(ARTICLE)
    assert fetch("/Brücke#part")["status"] == 200


@pytest.mark.parametrize(
    "url",
    ["good.example/a", "ftp://good.example/", "http://", "file:///etc/passwd", "javascript:1",
     "http://user:c4nary@good.example/", "http://good.example:99999/", "http://["],
)  # fmt: skip
def test_what_is_no_address_of_the_web_is_refused(fetch, web, url):
    error = failure(fetch, url=url)
    assert error.code in {"REQUEST_INVALID", "HOST_INVALID"}
    assert web.seen == [] and "c4nary" not in error.message


def test_a_host_that_is_not_on_the_list_is_refused(fetch, web):
    assert failure(fetch, "/a", host="other.example").code == "HOST_NOT_ALLOWED"
    assert web.connections == 0


def test_an_answer_beyond_its_size_is_refused_also_when_packed(fetch, web):
    web.replies["/a"] = Reply(headers=[("Content-Type", "text/plain")], body=b"x" * 5_000)
    assert failure(fetch, "/a", max_bytes=4_999).code == "TOO_LARGE"
    assert fetch("/a", max_bytes=5_000)["size_bytes"] == 5_000
    web.replies["/b"] = zipped(b"x" * 5_000)
    assert failure(fetch, "/b", max_bytes=4_999).code == "TOO_LARGE"


def test_a_text_that_no_result_holds_is_cut_and_says_so(fetch, web):
    text = "漢" * 3_400_000
    web.replies["/a"] = html(text, kind="text/plain; charset=utf-8")
    found = fetch("/a", max_bytes=10 * 1024 * 1024)
    most = DEFINITION["constraints"]["max_output_size"]
    assert found["truncated"] is True and len(json.dumps(found)) < most
    kept, marker = found["content"].split("\n\n")
    assert marker == f"[Cut here, after {len(kept)} of 3400000 characters.]"
    assert found["size_bytes"] == 10_200_000


def test_the_largest_bytes_fit_into_a_result(fetch, web):
    body = bytes(range(256)) * (10 * 4096)
    web.replies["/a"] = Reply(headers=[("Content-Type", "image/png")], body=body)
    found = fetch("/a", format="raw", max_bytes=10 * 1024 * 1024)
    assert base64.b64decode(found["content"]) == body and found["truncated"] is False
    assert len(json.dumps(found)) < DEFINITION["constraints"]["max_output_size"]


def test_a_server_that_takes_too_long_is_left(fetch, web, inside, monkeypatch):
    held = web.replies["/a"] = Held(html(ARTICLE))
    monkeypatch.setattr(inside["web_fetch"], "MOST_S", 0.2)
    assert failure(fetch, "/a").code == "TIMEOUT"
    held.let_go()


def test_a_broken_answer_is_a_failure(fetch, web):
    web.replies["/a"] = Raw([b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nshort"])
    assert failure(fetch, "/a").code == "RESPONSE_INVALID"


__all__ = ["short_directory"]
_OWN_GROUPS = f"web-{GROUPS}"  # another sandboxd may run for the whole session


@pytest.fixture(scope="module")
def daemon(short_directory: str) -> Iterator[Daemon]:
    one = Daemon(short_directory, _OWN_GROUPS)
    one.start()
    yield one
    one.stop()
    remove_groups(_OWN_GROUPS)


@pytest.mark.part("sandbox", but_each=4)
@pytest.mark.parametrize("level", IsolationLevel)
def test_the_tool_is_ready_with_what_its_profile_mounts(daemon, level):
    builtin = ISOLATED["web_fetch"]
    spec = SandboxSpec(
        organization="acme",
        profile=replace(builtin.profile("acme"), level=level),
        limits=Limits(),
        program=Preloaded(builtin.module),
        parameters={"url": "http://good.example/", "format": "text", "max_bytes": 1_000},
    )
    result = daemon.client.run(spec)
    assert (result.outcome, result.error_code) == ("FAILED", "NETWORK_OFF"), result.error_message
    assert (result.stdout, result.stderr) == ("", "")
