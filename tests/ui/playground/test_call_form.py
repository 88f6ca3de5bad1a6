"""The form that a schema becomes, without a browser or a database."""

from typing import Any

import pytest

from tools.definitions.tool import read_definition
from tools.ui.playground.call_form import ParameterForm, parameter_form


def form(*parameters: dict[str, Any], **given: str) -> ParameterForm:
    described = [{"description": "x", **parameter} for parameter in parameters]
    source = {"source": "def main(p): return p"}
    made = parameter_form(
        read_definition(
            {
                "name": "t",
                "type": "code",
                "description": "d",
                "parameters": described,
                "implementation": source,
            }
        )
    )
    made.fill({f"p.{name}": value for name, value in given.items()})
    return made


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("String", "a\r\nb", "a\nb"),
        ("Integer", " 7 ", 7),
        ("Number", "1.5", 1.5),
        ("Number", "2", 2),
        ("Boolean", "true", True),
        ("Array", '["a"]', ["a"]),
        ("Object", '{"a": 1}', {"a": 1}),
    ],
)
def test_what_was_typed_becomes_a_value(kind: str, text: str, value: Any) -> None:
    assert form({"name": "x", "type": kind}, x=text).parameters() == {"x": value}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("Integer", "1.5"), ("Integer", "9" * 40), ("Number", "much"), ("Array", "[1,"),
     ("Object", '{"a": 1, "a": 2}')],
)  # fmt: skip
def test_what_cannot_be_read_is_told_at_its_field(kind: str, text: str) -> None:
    filled = form({"name": "x", "type": kind}, x=text)
    filled.parameters()
    assert filled.flawed
    assert filled.fields[0].errors


def test_an_empty_field_is_left_out_unless_it_is_a_required_text() -> None:
    required = {"name": "must", "type": "String", "required": True}
    filled = form({"name": "x", "type": "String"}, {"name": "n", "type": "Integer"}, required)
    assert filled.parameters() == {"must": ""}


def test_defaults_are_filled_in_and_choices_offered() -> None:
    made = parameter_form(
        read_definition(
            {
                "name": "t",
                "type": "code",
                "description": "d",
                "implementation": {"source": "def main(p): return p"},
                "parameters": [
                    {"name": "n", "type": "Integer", "description": "d", "default": 3},
                    {"name": "e", "type": "String", "description": "d", "enum": ["a", "b"]},
                ],
            }
        )
    )
    number, choice = made.fields
    assert (number.widget, number.value) == ("number", "3")
    assert choice.options == [("", "– leave out –"), ('"a"', "a"), ('"b"', "b")]


def test_flaws_of_the_road_find_their_fields() -> None:
    filled = form({"name": "a", "type": "Object", "required": True}, {"name": "b", "type": "Array"})
    left = filled.place(
        [
            {"place": "/", "message": '"a" is a required property'},
            {"place": "/b/0", "message": "1 is not of type string"},
            {"place": "/elsewhere", "message": "odd"},
        ]
    )
    assert filled.fields[0].errors == ["This is required."]
    assert filled.fields[1].errors == ["/b/0: 1 is not of type string"]
    assert [flaw["place"] for flaw in left] == ["/elsewhere"]


def test_an_open_schema_takes_further_parameters() -> None:
    schema = {"type": "object", "properties": {"a": True}}
    made = parameter_form({"input_schema": schema, "parameters": []})
    made.fill({"p.a": "1", "p.rest": '{"b": 2}'})
    assert made.parameters() == {"a": 1, "b": 2}
    made.fill({"p.rest": "[]"})
    made.parameters()
    assert made.flawed
