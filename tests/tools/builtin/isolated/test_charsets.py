"""The response to an http tool's request as it is read, and the charsets of texts."""

import json
import threading

import pytest

from sandbox.client import SandboxClient
from sandbox.egress.rules.egress_policy import EgressPolicy, HostRule
from sandbox.inside import sandbox_http
from sandbox.inside.toolcrib import ToolError
from sandbox.spec import RunOutcome
from tests.sandbox.egress.conftest import NAME
from tests.stubs.web import Reply
from tools.runners.http_responses import read_response

CHINESE_GREETING, JAPANESE_GREETING = "你好，世界", "日本語のテキスト"
RUSSIAN = "Мост закрыли в марте, когда проверка нашла трещины в двух опорах."


@pytest.fixture
def ask(place, web):
    """Sends one request through the broker, which allows the stub server under its name."""
    client = SandboxClient("", place.path)

    def asking(kind, body, *, select=None, status=200):
        web.replies["/x"] = Reply(status, [("Content-Type", kind)] if kind else [], body)

        def exchange(door):
            address = web.url("/x", host=NAME)
            answer = sandbox_http.request("GET", address, max_bytes=1_000_000, door=door)
            return read_response(answer, select)

        outcome = client.exchange(
            EgressPolicy((HostRule(NAME, ports=(web.port,)),)), "acme", exchange,
            wall_s=10, cancelled=threading.Event(),
        )  # fmt: skip
        if outcome.outcome != RunOutcome.SUCCESS:
            raise ToolError(outcome.error_code, outcome.error_message)
        return outcome.output

    yield asking
    client.close()


@pytest.mark.parametrize(
    ("kind", "text", "codec"),
    [
        ("text/plain; charset=gbk", CHINESE_GREETING, "gbk"),
        ("text/plain; charset=GB2312", CHINESE_GREETING, "gb2312"),
        ('text/plain;charset="Shift_JIS"', JAPANESE_GREETING, "cp932"),
        ("text/csv; charset=windows-1251", RUSSIAN, "cp1251"),
        ("text/plain; charset=utf-16le", RUSSIAN, "utf-16-le"),
        ("text/plain; charset=iso-8859-1", "über", "latin-1"),
        ("text/plain; charset=iso-8859-1", RUSSIAN, "utf-8-sig"),
        ("text/plain", RUSSIAN, "cp1251"),
        ("application/octet-stream; charset=big5", CHINESE_GREETING, "big5"),
        (
            "application/xml",
            f"<?xml version='1.0' encoding='euc-jp'?><a>{JAPANESE_GREETING}</a>",
            "euc-jp",
        ),
        ("text/html", f"<meta charset='gbk'><p>{CHINESE_GREETING}", "gbk"),
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
    text = json.dumps({"text": CHINESE_GREETING}, ensure_ascii=False)
    assert ask(kind, text.encode(codec), select="/text")["output"] == CHINESE_GREETING


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
    with pytest.raises(ToolError) as caught:
        ask("application/json", b"[1%s]" % (b"0" * 300))
    assert "more than 300 digits" in caught.value.message


def test_json_in_an_undeclared_charset_is_none(ask):
    with pytest.raises(ToolError) as caught:
        ask("application/json", '"ü"'.encode("latin-1"))
    assert caught.value.code == "RESPONSE_NOT_JSON"


def test_the_words_of_a_refusal_are_read_so_too(ask):
    said = ask("text/plain; charset=gbk", CHINESE_GREETING.encode("gbk"), status=400)
    assert said["excerpt"] == CHINESE_GREETING


FRENCH = "Où sont passés les élèves ? À l’école, bien sûr, déjà très tôt."
JAPANESE = "橋は三月に閉鎖されました。点検で二本の柱にひびが見つかったためです。"
KOREAN = "점검에서 두 기둥에 균열이 발견되어 다리는 삼월에 폐쇄되었다."
CHINESE = "检查发现两根桥墩有裂缝，这座桥在三月份关闭了。"
GREEK = "Η γέφυρα έκλεισε τον Μάρτιο όταν ο έλεγχος βρήκε ρωγμές."
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy."


@pytest.fixture(scope="session")
def charsets(inside):
    return inside["charsets"]


def decoded(charsets, body, declared=None, markup=True):
    return charsets.decode(body, declared, markup=markup)


@pytest.mark.parametrize("name", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_counts_more_than_what_is_said(charsets, name):
    text, _ = decoded(charsets, RUSSIAN.encode(name), "windows-1252")
    assert text == RUSSIAN


@pytest.mark.parametrize(
    ("label", "codec", "text", "name"),
    [
        ("ISO-8859-1", "cp1252", FRENCH, "windows-1252"),
        ("cp1251", "cp1251", RUSSIAN, "windows-1251"),
        ("KOI8-R", "koi8-r", RUSSIAN, "koi8-r"),
        ("Shift_JIS", "cp932", JAPANESE, "shift_jis"),
        ("x-sjis", "cp932", JAPANESE, "shift_jis"),
        ("ISO-2022-JP", "iso2022-jp", JAPANESE, "iso-2022-jp"),
        ("gb2312", "gb18030", CHINESE, "gbk"),
        ("ks_c_5601-1987", "cp949", KOREAN, "euc-kr"),
        ("iso8859-7", "iso8859-7", GREEK, "iso-8859-7"),
        ("utf-16", "utf-16-le", GREEK, "utf-16le"),
        ("UTF8", "utf-8", CZECH, "utf-8"),
    ],
)
def test_what_the_server_says_is_read_as_browsers_read_it(charsets, label, codec, text, name):
    assert decoded(charsets, text.encode(codec), label) == (text, name)


@pytest.mark.parametrize(
    "declaration",
    [
        '<meta charset="windows-1251">',
        "<META CHARSET = windows-1251 >",
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        '<?xml version="1.0" encoding="windows-1251"?>',
    ],
)
def test_what_the_page_says_is_heard(charsets, declaration):
    body = f"{declaration}<p>{RUSSIAN}".encode("cp1251")
    assert decoded(charsets, body)[1] == "windows-1251"
    assert RUSSIAN in decoded(charsets, body)[0]


def test_what_the_server_says_counts_more_than_what_the_page_says(charsets):
    body = f'<meta charset="koi8-r">{CZECH}'.encode()
    assert decoded(charsets, body, "utf-8")[0].endswith(CZECH)


@pytest.mark.parametrize(("before", "more"), [(b" " * 3000, {}), (b"", {"markup": False})])
def test_what_a_page_says_far_below_or_without_markup_is_not_heard(charsets, before, more):
    body = before + b'<meta charset="koi8-r">' + CZECH.encode()
    assert decoded(charsets, body, **more)[1] == "utf-8"


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1252", FRENCH), ("cp1251", RUSSIAN), ("koi8-r", RUSSIAN), ("cp932", JAPANESE),
        ("euc-jp", JAPANESE), ("gb18030", CHINESE), ("cp949", KOREAN), ("cp1253", GREEK),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "<p>Menu</p>\n" * 2000])
def test_a_page_that_says_nothing_is_read_by_its_looks(charsets, codec, text, before):
    body = before.encode() + (text * 3).encode(codec) + b"\n<p>Imprint</p>" * 2000
    assert text in decoded(charsets, body)[0]


@pytest.mark.parametrize(
    "label",
    ["zlib", "rot13", "punycode", "idna", "unicode_escape", "utf-7", "base64", "", "x" * 99],
)  # fmt: skip
def test_an_encoding_no_page_has_is_not_used(charsets, label):
    assert decoded(charsets, b"plain +AGE- \\u0041", label) == ("plain +AGE- \\u0041", "utf-8")


@pytest.mark.parametrize("declared", [None, "utf-8", "utf-16", "shift_jis", "windows-1252"])
def test_what_no_encoding_explains_is_replaced_and_can_be_stored(charsets, declared):
    text, _ = decoded(charsets, bytes(range(256)) * 300 + b"\xff", declared)
    assert "\0" not in text and "\x1b" not in text
    assert text.encode("utf-8")


def test_a_lone_surrogate_does_not_get_out(charsets):
    assert charsets.printable("a\ud800b\0c\td") == "a?b\ufffdc\td"


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "body",
    [b"<meta " * 200_000 + b"\xe9", b"<?xml " + b"a" * 900_000, b"\xe9" * 900_000,
     b"<meta charset=" * 70_000, b"\x81\xff" * 400_000],
    ids=["metas", "a long declaration", "one letter", "many declarations", "nothing fits"],
)  # fmt: skip
def test_a_body_made_to_be_slow_is_read(charsets, body):
    text, name = decoded(charsets, body)
    assert text and name in charsets.CODECS
