"""The response to an http tool's request, as it is read inside the sandbox."""

import json

import pytest

from sandbox.egress.rules.egress_policy import HostRule
from tests.sandbox.egress.conftest import NAME
from tests.stubs.web import Reply
from tests.tools.builtin.in_process import loaded

CHINESE, JAPANESE = "你好，世界", "日本語のテキスト"
RUSSIAN = "Мост закрыли в марте, когда проверка нашла трещины в двух опорах."


@pytest.fixture
def ask(place, web):
    """Sends one request; an egress rule allows the stub server under its name."""

    def asking(kind, body, *, select=None, status=200):
        web.replies["/x"] = Reply(status, [("Content-Type", kind)] if kind else [], body)
        parameters = {
            "method": "GET", "url": web.url("/x", host=NAME), "headers": {}, "body": "",
            "timeout_s": 10, "max_bytes": 1_000_000, "redirects": 0, "select": select,
        }  # fmt: skip
        with place.run(HostRule(NAME, ports=(web.port,))):
            return loaded("http_call")["http_call"].main(parameters)

    return asking


@pytest.mark.parametrize(
    ("kind", "text", "codec"),
    [
        ("text/plain; charset=gbk", CHINESE, "gbk"),
        ("text/plain; charset=GB2312", CHINESE, "gb2312"),
        ('text/plain;charset="Shift_JIS"', JAPANESE, "cp932"),
        ("text/csv; charset=windows-1251", RUSSIAN, "cp1251"),
        ("text/plain; charset=utf-16le", RUSSIAN, "utf-16-le"),
        ("text/plain; charset=iso-8859-1", "über", "latin-1"),
        ("text/plain; charset=iso-8859-1", RUSSIAN, "utf-8-sig"),
        ("text/plain", RUSSIAN, "cp1251"),
        ("application/octet-stream; charset=big5", CHINESE, "big5"),
        ("application/xml", f"<?xml version='1.0' encoding='euc-jp'?><a>{JAPANESE}</a>", "euc-jp"),
        ("text/html", f"<meta charset='gbk'><p>{CHINESE}", "gbk"),
    ],
)
def test_a_text_is_read_in_the_charset_that_the_answer_names(ask, kind, text, codec):
    """In the order of `web_fetch`: byte order mark, header, the document's declaration,
    detection."""
    assert ask(kind, text.encode(codec))["output"] == {"status": 200, "body": text}


def test_what_no_charset_that_is_known_can_read_stays_bytes(ask):
    output = ask("text/plain; charset=x-nobody", b"\xff\x80a")["output"]
    assert (output["body"], output["encoding"]) == ("/4Bh", "base64")
    assert ask("text/plain; charset=zip", "ü".encode())["output"]["body"] == "ü"


@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        ("application/json", "utf-8"),
        ("application/json", "utf-8-sig"),
        ("application/json; charset=iso-8859-1", "utf-8"),
        ("application/json; charset=gbk", "gbk"),
        ("application/json; charset=utf-16", "utf-16"),
        ("application/problem+json; charset=utf-16be", "utf-16-be"),
    ],
)
def test_json_is_utf_8_or_what_the_answer_names(ask, kind, codec):
    text = json.dumps({"text": CHINESE}, ensure_ascii=False)
    assert ask(kind, text.encode(codec), select="/text")["output"] == CHINESE


@pytest.mark.parametrize(
    "number", [1917043659912705296, -(2**63), 2**64 - 1, 10**299], ids=range(4)
)
def test_an_integer_is_exact(ask, number):
    body = b'{"rows": [{"id": %d}]}' % number
    assert ask("application/json", body)["output"]["body"] == {"rows": [{"id": number}]}
    assert ask("application/json", body, select="/rows/0/id")["output"] == number
    refused = ask("application/json", body, status=409)
    assert refused["excerpt"] == body.decode()


def test_an_integer_of_more_than_300_digits_is_no_answer(ask):
    modules = loaded("http_call")
    with pytest.raises(modules["http_call"].ToolError, match="more than 300 digits"):
        ask("application/json", b"[1%s]" % (b"0" * 300))


def test_json_in_a_charset_that_nobody_names_is_none(ask):
    modules = loaded("http_call")
    with pytest.raises(modules["http_call"].ToolError) as caught:
        ask("application/json", '"ü"'.encode("latin-1"))
    assert caught.value.code == "RESPONSE_NOT_JSON"


def test_the_words_of_a_refusal_are_read_so_too(ask):
    said = ask("text/plain; charset=gbk", CHINESE.encode("gbk"), status=400)
    assert said["excerpt"] == CHINESE
