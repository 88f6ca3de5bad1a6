"""Definitions of prompts, completions, queries and updates, also in TrustGraph's dialect."""

import pytest

from tools.definitions.tool import definition_digest, ordered_definition, read_definition
from tools.errors import InvalidDefinition

KINDS = {
    "text-completion": ("question", {"system": None, "model": None, "max_tokens": None}),
    "knowledge-query": ("question", {"collection": None, "limit": None}),
    "structured-query": ("question", {"collection": None, "limit": None}),
    "graph-update": ("triples", {"collection": None, "limit": None}),
}


def written(kind, **fields):
    return {"name": "x", "type": kind, "description": "Does it."} | fields


def prompt(template="Hi {{ name }}", names=("name",), **implementation):
    parameters = [{"name": one, "type": "String", "description": "-"} for one in names]
    return written(
        "prompt", parameters=parameters, implementation={"template": template} | implementation
    )


def flaws(definition):
    with pytest.raises(InvalidDefinition) as caught:
        read_definition(definition)
    return {flaw["field"]: flaw["message"] for flaw in caught.value.details["errors"]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_that_says_nothing_has_its_usual_parameter_and_implementation(kind):
    name, implementation = KINDS[kind]
    read = read_definition(written(kind))
    assert [one["name"] for one in read["parameters"]] == [name]
    assert read["input_schema"]["required"] == [name]
    assert implementation.items() <= read["implementation"].items()
    assert read["delivery"] == "idempotent"


@pytest.mark.parametrize("definition", [*map(written, KINDS), prompt()], ids=[*KINDS, "prompt"])
def test_reading_what_was_read_changes_nothing(definition):
    read = read_definition(definition)
    assert definition_digest(read_definition(ordered_definition(read))) == definition_digest(read)


def test_trustgraphs_own_words_are_understood():
    read = read_definition(
        written(
            "knowledge-query",
            implementation={"collection": "customers"},
            **{"applicable-states": ["undefined"]},
        )
    )
    assert read["implementation"]["collection"] == "customers"
    assert read["available_in_states"] == ["undefined"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_that_takes_something_else_alone_is_refused(kind):
    other = [{"name": "other", "type": "String", "description": "-"}]
    assert "must have one with the name" in flaws(written(kind, parameters=other))["parameters"]


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        (written("prompt"), "template"),
        (written("prompt", implementation={}), "implementation.template"),
        (prompt(5), "implementation.template"),
        (prompt("{{ nobody }}"), "implementation.template"),
        (prompt("{{ name.__class__ }}"), "implementation.template"),
        (prompt(max_tokens=0), "implementation.max_tokens"),
        (prompt(max_prompt_bytes=True), "implementation.max_prompt_bytes"),
        (prompt(model=["a"]), "implementation.model"),
        (prompt(url="http://x"), "implementation.url"),
        (written("text-completion", implementation={"template": "x"}), "implementation.template"),
        (written("knowledge-query", implementation={"limit": 10_001}), "implementation.limit"),
        *(
            (
                written("graph-update", implementation={"collection": bad}),
                "implementation.collection",
            )
            for bad in ("a b", "", "a>", "../x", 5, "x" * 101, "urn:other")
        ),
    ],
    ids=range(18),
)
def test_a_wrong_field_is_named(definition, field):
    assert field in flaws(definition)
