"""The table of a tool's arguments, the text beside it, and what is said while they are written."""

import json
import re
from typing import Any

import pytest
from django.test import Client

from tests import factories
from tests.ui.editor.test_editor import answers, argument, saved
from tests.ui.pages import fields, htmx, inline_code, notes, text
from tools.models import Organization, Tool


def drawn(client: Client, **more: str) -> dict[str, str]:
    """What a browser sends of a form with one argument that it was shown."""
    sent = answers(arguments="1") | argument(0, "city")
    page = text(client.post("/editor/", sent | {"do": "take table"}))
    return sent | fingerprints(page) | {"arguments-text": area(page)} | more


def fingerprints(page: str) -> dict[str, str]:
    return {key: value for key, value in fields(page).items() if key.endswith("-noted")}


def area(page: str) -> str:
    return fields(page)["arguments-text"]


def part(client: Client, sent: dict[str, str]) -> str:
    return text(client.post("/editor/", sent, headers=htmx("argument-status")))


def names(page: str) -> list[str]:
    return re.findall(r'name="argument-\d+-name" value="([^"]*)"', page)


def test_the_text_beside_the_table_says_the_same(admin_client: Client) -> None:
    assert drawn(admin_client)["arguments-text"] == (
        "- name: city\n  type: String\n  description: The city."
    )


def test_a_text_that_was_changed_is_what_is_saved(admin_client: Client) -> None:
    added = "- {name: land, type: string, description: The land., required: true, enum: [a, 1]}"
    sent = drawn(admin_client, **{"arguments-text": added})
    assert admin_client.post("/editor/", sent).status_code == 302
    assert [one["name"] for one in saved()["parameters"]] == ["land"]
    assert saved()["parameters"][0]["enum"] == ["a", 1]


def test_a_table_that_was_changed_is_what_is_saved(admin_client: Client) -> None:
    sent = drawn(admin_client) | argument(0, "town")
    assert admin_client.post("/editor/", sent).status_code == 302
    assert [one["name"] for one in saved()["parameters"]] == ["town"]


def test_where_both_were_changed_a_person_says_which_counts(
    admin_client: Client, organization: Organization
) -> None:
    sent = drawn(admin_client, **{"arguments-text": "[]"}) | argument(0, "town")
    response = admin_client.post("/editor/", sent)
    page = text(response)
    assert response.status_code == 400 and 'value="take text"' in page and names(page) == ["town"]
    assert not Tool.objects.filter(organization=organization, name="fresh").exists()
    assert names(text(admin_client.post("/editor/", sent | {"do": "take text"}))) == []
    assert names(text(admin_client.post("/editor/", sent | {"do": "take table"}))) == ["town"]


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("- name: [", "line"), ("name: a", "[ ]"), ("- 5", "1"),
        ("- {name: a, secret: 1}", "secret"), ("- {name: 5}", "name"),
        ("- {name: a, type: Date}", "String"), ("- {name: a, required: often}", "required"),
        ("[" * 5000, ""), ("- a\n---\n- b", "[ ]"),
        ("[" + ",".join(['{"name": "a"}'] * 201) + "]", "200"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_read_saves_nothing_and_stays(
    admin_client: Client, organization: Organization, written: str, expected: str
) -> None:
    sent = drawn(admin_client, **{"arguments-text": written})
    response = admin_client.post("/editor/", sent)
    page = text(response)
    (flaw,) = notes(page)["flaw-arguments-text"]
    assert response.status_code == 400 and expected in flaw and area(page) == written
    assert names(page) == ["city"]
    assert not Tool.objects.filter(organization=organization, name="fresh").exists()
    again = sent | fingerprints(page)
    assert admin_client.post("/editor/", again).status_code == 400


def test_json_stays_json_and_becomes_yaml_when_asked(admin_client: Client) -> None:
    sent = drawn(admin_client)
    page = text(admin_client.post("/editor/", sent | {"do": "write json"}))
    assert area(page).startswith("[\n")
    sent |= fingerprints(page) | {"arguments-text": area(page)} | argument(0, "town")
    page = text(admin_client.post("/editor/", sent | {"do": "add"}))
    assert area(page).startswith("[\n") and '"town"' in area(page)
    sent |= fingerprints(page) | {"arguments-text": area(page), "do": "write yaml"}
    assert area(text(admin_client.post("/editor/", sent))).startswith("- name: town")


def test_what_is_wrong_is_said_while_it_is_written(admin_client: Client) -> None:
    sent = drawn(admin_client, do="check table") | argument(0, "9lives", default="5")
    page = part(admin_client, sent)
    assert 'data-wrong="name default"' in page and "1" in notes(page)["cells-wrong"][0]
    assert {"flaw-argument-0-name", "flaw-argument-0-default"} <= set(notes(page))
    assert "<form" not in page and "9lives" in area(page)


def test_what_waits_for_its_words_is_not_wrong_while_one_writes(admin_client: Client) -> None:
    sent = drawn(admin_client, do="check table") | argument(0, "", description="")
    assert 'data-wrong=""' in part(admin_client, sent)


def test_a_cell_that_cannot_be_read_leaves_the_text_as_it_was(admin_client: Client) -> None:
    sent = drawn(admin_client)
    page = part(admin_client, sent | argument(0, "town", default="{") | {"do": "check table"})
    assert 'data-wrong="default"' in page and area(page) == sent["arguments-text"]
    assert fingerprints(page)["table-noted"] == sent["table-noted"]


def test_the_table_follows_a_text_while_it_is_written(admin_client: Client) -> None:
    sent = drawn(admin_client, do="check text", **{"arguments-text": '[{"name": "x"}]'})
    page = part(admin_client, sent)
    assert names(page) == ["x"] and 'name="arguments" value="1"' in page
    assert 'id="i-arguments-text"' not in page  # it is being written


def test_nothing_that_the_table_does_not_show_is_lost(
    admin_client: Client, organization: Organization
) -> None:
    rows = [
        {"name": "deep", "type": "Object", "description": "Deep.", "required": True,
         "default": {"a": [1]}, "enum": [{"a": [1]}, {}],
         "schema": {"properties": {"a": {"type": "array", "items": {"minimum": 1}}}}},
        {"name": "flag", "type": "Boolean", "description": "Two\nlines.", "default": False},
    ]  # fmt: skip
    tool = factories.tool(organization, parameters=rows)
    form = fields(text(admin_client.get("/editor/echo/")))
    emptied = {key: value for key, value in form.items() if not key.startswith("argument-")}
    page = text(admin_client.post("/editor/echo/", emptied | {"do": "take text"}))
    of_each_form = {"csrfmiddlewaretoken": "", "one_time_key": "", "filled_from": ""}
    assert fields(page) | of_each_form == form | of_each_form
    changed = form | {"title": "Anew"}
    assert admin_client.post("/editor/echo/", changed).status_code == 302
    assert tool.versions.count() == 2
    for one, before in zip(saved("echo")["parameters"], rows, strict=True):
        assert {key: one[key] for key in before} == before


@pytest.mark.parametrize(
    ("do", "focus"),
    [("up 1", "down-0"), ("down 0", "up-1"), ("remove 1", "remove-0"), ("add", "name-2")],
)
def test_the_keyboard_goes_on_where_the_argument_went(
    admin_client: Client, do: str, focus: str
) -> None:
    sent = answers(do=do, arguments="2") | argument(0, "a") | argument(1, "b")
    page = text(admin_client.post("/editor/", sent)).split('id="editor"')[1].split("</form>")[0]
    which, at = focus.split("-")
    place = f"i-argument-{at}-name" if which == "name" else focus
    assert page.count("autofocus") == 1
    assert "autofocus" in re.findall(rf'<[^>]*id="{place}"[^>]*>', page)[0]


def schema(**more: Any) -> str:
    properties = {"q": {"type": "string", "minLength": 1, "default": "x"}, "n": {"type": "number"}}
    return json.dumps({"type": "object", "properties": properties, "required": ["n"]} | more)


def test_a_schema_becomes_a_table_where_that_loses_nothing(admin_client: Client) -> None:
    page = text(admin_client.post("/editor/", answers(input_schema=schema(), do="unfold")))
    assert names(page) == ["q", "n"] and "minLength" in page
    assert "flaw-input_schema" not in notes(page)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (schema(**{"$defs": {}}), "$defs"), (schema(additionalProperties=True), ""),
        (schema(properties={"q": {}}), " q "), (schema(required=["z"]), ""),
        (schema(properties={"q": {"type": "string", "default": None}}), " q "),
        (schema(properties={"q": {"type": "string", "description": 5}}), " q "),
        (schema(required=5), "required"), ("[1]", ""), ("{", "JSON"),
    ],
)  # fmt: skip
def test_a_schema_that_a_table_cannot_hold_stays_as_it_is(
    admin_client: Client, given: str, expected: str
) -> None:
    response = admin_client.post("/editor/", answers(input_schema=given, do="unfold"))
    page = text(response)
    (flaw,) = notes(page)["flaw-input_schema"]
    assert response.status_code == 400 and expected in flaw and names(page) == []
    assert 'id="unfold"' in page


def test_an_argument_can_be_added_to_a_tool_that_takes_none(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, parameters=[])
    assert 'id="unfold"' not in text(admin_client.get("/editor/echo/"))
    sent = answers(name="echo", arguments="1") | argument(0, "a")
    assert admin_client.post("/editor/echo/", sent).status_code == 302


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "odd",
    [{"do": "check"}, {"do": "check \x00"}, {"do": "take"}, {"do": "write \x00"}, {"do": "unfold"},
     {"arguments-text": "\x00"}, {"arguments-text": "- &a [*a]"}, {"table-noted": "9" * 900},
     {"arguments-text": "- {name: a, default: 1e999}"}, {"do": "up ²"},
     {"arguments-text": "- {name: a, default: 2020-01-01, 5: x}"}],
)  # fmt: skip
def test_nothing_odd_is_an_error_of_ours(admin_client: Client, odd: dict[str, str]) -> None:
    response = admin_client.post("/editor/", answers(**odd))
    assert response.status_code in {200, 302, 400} and inline_code(response) == []
