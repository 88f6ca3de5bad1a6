"""The HTTP request that an http tool sends for given arguments."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress.rules.grammar import Url
from tools.definitions.implementations.http_requests import build_request
from tools.definitions.implementations.http_tools import UnusableArgument

PLACE = "https://api.example.com"


def request(arguments=None, **implementation):
    whole = {"method": "GET", "url": f"{PLACE}/users", **implementation}
    return build_request(whole, arguments or {})


def target(arguments, **implementation):
    return request(arguments, **implementation).url.removeprefix(PLACE)


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("a\\b", "a%5Cb"),
        ("a?b#c", "a%3Fb%23c"),
        ("100%25", "100%2525"),
        ("@evil.example", "%40evil.example"),
        ("ü", "%C3%BC"),
        (7, "7"),
        (True, "true"),
        (1.5, "1.5"),
        ([1, "a,b"], "1,a%2Cb"),
    ],
)
def test_a_value_in_the_path_is_one_segment(value, segment):
    assert target({"id": value}, url=f"{PLACE}/users/{{id}}/x") == f"/users/{segment}/x"


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "..", "../admin", "a/../b", "..\\x", "x/..", "..;v=1", ".. ", "．．", "。。/."),
        *("%2e%2e", "a%2F..%2fb", "%252e%252E%252fx", ".%2e", "%2e.;x"),
        *("a\0", "a\r\nb", "\x7f", None, {"a": 1}, [[1]], []),
    ],
)
def test_a_value_that_would_change_the_path_is_refused(value):
    with pytest.raises(UnusableArgument, match="argument id"):
        target({"id": value}, url=f"{PLACE}/users/{{id}}/x")


def test_two_values_that_make_dots_together_are_refused():
    with pytest.raises(UnusableArgument):
        target({"a": ".", "b": "."}, url=f"{PLACE}/{{a}}{{b}}/x")


@given(st.text(max_size=20))
def test_no_value_leaves_its_segment(text):
    try:
        made = request({"id": text}, url=f"{PLACE}/users/{{id}}/x").url
    except UnusableArgument:
        return
    url = Url.parse(made)
    assert (url.host.text, url.port) == ("api.example.com", 443)
    assert [url.path.split("/")[at] for at in (1, 3)] == ["users", "x"]
    assert len(url.path.split("/")) == 4 and "?" not in url.target


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_value_leaves_its_entry_of_query_or_form(one, other):
    entries = {"a": "{one}", "b": "x{other}"}
    made = request({"one": one, "other": other}, method="POST", query=entries, form=entries)
    query = made.url.partition("?")[2]
    assert made.body.decode() == query
    assert [part.partition("=")[0] for part in query.split("&")] == ["a", "b"]
    Url.parse(made.url)


def test_a_query_leaves_out_what_is_absent_and_repeats_lists():
    query = {"q": "{text}", "page[size]": "{size}", "tag": "{tags}", "none": "{none}", "fix": "1"}
    arguments = {"text": "a&b=c", "tags": ["x", "y z"], "none": None}
    assert target(arguments, query=query) == "/users?q=a%26b%3Dc&tag=x&tag=y%20z&fix=1"
    assert target({"size": 3}, query=query) == "/users?page%5Bsize%5D=3&fix=1"


@pytest.mark.parametrize(
    ("separator", "joined"), [(",", "a%2Cb,c"), (" ", "a%2Cb%20c"), ("|", "a%2Cb%7Cc")]
)
def test_a_list_may_be_one_value_of_the_query(separator, joined):
    query = {"ids": {"value": "{ids}", "separator": separator}}
    assert target({"ids": ["a,b", "c"]}, query=query) == f"/users?ids={joined}"
    assert target({"ids": []}, query=query) == "/users"
    assert target({}, query=query) == "/users"


def test_a_query_goes_behind_the_one_that_is_written_out():
    assert target({"q": "x"}, url=f"{PLACE}/a?v=1", query={"q": "{q}"}) == "/a?v=1&q=x"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": 1}, {"query": {"q": "{a}"}}),
        *(
            (value, {"headers": {"X-A": "{a}"}})
            for value in ("a\r\nHost: b", "a\nb", "a\0", "ü", " a", "a ", "x" * 9000)
        ),
    ],
)
def test_what_is_no_value_of_a_query_or_a_header_is_refused(value, place):
    with pytest.raises(UnusableArgument, match="argument a"):
        request({"a": value}, **place)


def test_headers_and_cookies_leave_out_what_is_absent():
    made = request(
        {"a": "x", "n": 7},
        headers={"X-A": "v={a}", "X-B": "{b}", "accept": "text/csv"},
        cookies={"n": "{n}", "odd": "{a}; b=c", "no": "{b}"},
    )
    assert made.headers == {
        "X-A": "v=x", "accept": "text/csv", "Cookie": "n=7; odd=x%3B%20b%3Dc"
    }  # fmt: skip


def test_a_body_has_values_of_any_type_and_texts_inside_texts():
    body = {
        "id": "{id}",
        "list": ["{one}", "{none}", "fix"],
        "said": "it was {id} and {object}",
        "gone": "{none}",
        "gone too": "with {none}",
        "kept": {"deep": "{none}"},
        "braces": "{ id } {}",
    }
    arguments = {"id": 7, "one": None, "object": {"a": ["ü"]}}
    made = request(arguments, method="POST", body=body)
    assert json.loads(made.body) == {
        "id": 7,
        "list": [None, "fix"],
        "said": 'it was 7 and {"a": ["ü"]}',
        "kept": {},
        "braces": "{ id } {}",
    }
    assert made.headers["Content-Type"] == "application/json"


def test_an_argument_is_no_template():
    made = request({"a": "{b}", "b": "secret"}, method="POST", body=["{a}", "-{a}"])
    assert json.loads(made.body) == ["{b}", "-{b}"]


def test_a_body_that_is_one_argument_may_be_absent():
    made = request({}, method="POST", body="{all}")
    assert (made.body, "Content-Type" in made.headers) == (b"", False)
    assert request({"all": [1]}, method="POST", body="{all}").body == b"[1]"


def test_a_form_repeats_lists_and_leaves_out_what_is_absent():
    form = {"a": "{a}", "tags": "{tags}", "none": "{none}"}
    made = request({"a": "1&b=2", "tags": ["x", "y"]}, method="POST", form=form)
    assert made.body == b"a=1%26b%3D2&tags=x&tags=y"
    assert made.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_a_request_has_bounds():
    with pytest.raises(UnusableArgument, match="URL"):
        request({"q": "x" * 16_000}, query={"q": "{q}"})
    with pytest.raises(UnusableArgument, match="body"):
        request({"q": "x" * (8 << 20)}, method="POST", body="{q}")
