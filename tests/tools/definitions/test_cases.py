"""Definitions in every dialect, valid and invalid, as files: the parsed result, or the errors with
their places."""

import json
from pathlib import Path

import pytest

from tools.definitions.dialects import import_documents, import_entries
from tools.definitions.dialects.import_entries import ImportSource
from tools.definitions.dialects.import_references import KnownReferences, resolve_references
from tools.definitions.tool import read_definition
from tools.errors import InvalidDefinition

CASES = Path(__file__).parent / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text("utf-8"))
KNOWN = KnownReferences(
    services={
        "custom-rag": [
            {"name": "collection", "required": True}, {"name": "top-k", "required": False}
        ],
        "calculator": [],
    },
    servers={"bank": "", "weather": "get_forecast"},
    prompts={"summarise": "Summarise: {{question}}"},
)  # fmt: skip


def the_item(name):
    (document,) = import_documents.parse_documents((CASES / name).read_text("utf-8"))
    (item,) = import_entries.split_document(document, ImportSource.DEFINITIONS)
    return item


def canonical(item):
    raw, flaws = resolve_references(item.value, KNOWN)
    try:
        definition = read_definition(raw)
    except InvalidDefinition as error:
        named = {flaw["field"] for flaw in flaws}
        return None, flaws + [
            flaw for flaw in error.details["errors"] if flaw["field"] not in named
        ]
    return definition, flaws


def test_every_file_is_expected_and_there_are_fifty_at_least():
    files = {path.name for path in CASES.iterdir()} - {"expected.json"}
    assert files == EXPECTED["good"].keys() | EXPECTED["bad"].keys()
    assert len(files) >= 50


@pytest.mark.parametrize("name", EXPECTED["good"])
def test_a_good_definition_means_what_is_expected(name):
    definition, flaws = canonical(the_item(name))
    expected = dict(EXPECTED["good"][name])
    assert flaws == []
    types = [parameter["type"] for parameter in definition["parameters"]]
    assert types == expected.pop("types", types)
    assert {key: definition[key] for key in expected} == expected


@pytest.mark.parametrize("name", EXPECTED["good"])
def test_what_was_made_of_it_is_read_as_the_same_again(name):
    definition, _ = canonical(the_item(name))
    assert read_definition(json.loads(json.dumps(definition))) == definition


@pytest.mark.parametrize("name", EXPECTED["bad"])
def test_every_wrong_field_of_a_bad_one_is_named_with_its_line(name):
    item = the_item(name)
    _, flaws = canonical(item)
    found = [[flaw["field"], item.lines.field_line(flaw["field"])] for flaw in flaws]
    assert found == EXPECTED["bad"][name]
