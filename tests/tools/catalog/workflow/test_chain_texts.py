"""Chains as text: errors with their lines, and the text of a stored chain."""

import pytest

from tests import factories
from tools.catalog.workflow.chain_texts import read_text, text_of

CHAIN = """\
name: twice
description: Says it twice.
group: [talk]
parameters:
  - {name: text, type: String, description: Anything., required: true}
steps:
  - id: first
    tool_name: echo
    parameters: {text: {$input: /text}}
  - id: second
    tool_name: echo
    when: {succeeded: first}
    parameters: {text: {$step: first, path: /output/text}}
    retries: {attempts: 2}
output: {again: {$step: second}}
"""


@pytest.fixture(autouse=True)
def _tool(organization):
    factories.tool(organization)


def test_a_good_text_is_a_definition(organization):
    found = read_text(organization, CHAIN)
    assert found.flaws == []
    assert found.definition["name"] == "twice"


@pytest.mark.parametrize(
    ("wrong", "right", "line", "place"),
    [
        ("tool_name: echo\n    when", "tool_name: ecco\n    when", 11, "steps.1.tool_name"),
        ("{$step: first,", "{$step: frst,", 13, "steps.1.parameters.text"),
        ("attempts: 2", "attempts: 99", 14, "steps.1.retries.attempts"),
        ("type: String", "type: Sting", 5, "parameters[0].type"),
        ("name: twice", "name: ''", 1, "name"),
    ],
)
def test_each_flaw_has_its_line(organization, wrong, right, line, place):
    found = read_text(organization, CHAIN.replace(wrong, right))
    assert found.definition is None
    assert [(flaw.line, flaw.place) for flaw in found.flaws] == [(line, place)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: [", 2), ("a: 1\na: 2\n", 2), ("", None), ("- a\n", None),
        ("x: !!python/name:os", 1),
        ("--- {}\n--- {}\n", None), ("a: \x00", None), ('{"a": 1, "a": 2}', 1), ("7", None),
    ],
)  # fmt: skip
def test_an_invalid_chain_is_reported_without_an_exception(organization, text, line):
    found = read_text(organization, text)
    assert found.definition is None
    assert found.flaws and found.flaws[0].line == line
    assert found.flaws[0].message


def test_a_text_as_large_as_a_book_is_refused(organization):
    found = read_text(organization, "a" * 5_000_000)
    assert "larger" in found.flaws[0].message


def test_a_possible_mismatch_is_reported_with_its_line(organization):
    output = {"type": "object", "properties": {"text": {"type": "integer"}}}
    factories.tool(organization, "count", output_schema=output)
    found = read_text(organization, CHAIN.replace("tool_name: echo", "tool_name: count", 1))
    assert found.definition is None
    assert (found.flaws[0].line, found.flaws[0].place) == (13, "steps.1.parameters.text")


@pytest.fixture
def store_chain(organization):
    """The chain's definition as the database returns it."""

    def keep(text):
        tool = factories.register(organization, read_text(organization, text).raw)
        tool.version.refresh_from_db()
        return tool.version.definition

    return keep


def test_a_kept_chain_is_written_as_short_as_it_reads_the_same(organization, store_chain):
    definition = store_chain(CHAIN)
    text = text_of(definition)
    assert read_text(organization, text).definition == definition
    assert "retries" in text and "input_schema" not in text and "null" not in text
    assert "text: {$step: first, path: /output/text}" in text
    assert text.index("when:") < text.index("retries:")


def test_of_its_limits_only_what_was_said_is_written(store_chain):
    text = text_of(store_chain(CHAIN + "constraints: {max_execution_time: PT1H}\n"))
    assert "constraints:\n  max_execution_time: PT1H\n" in text
    assert "max_output_size" not in text


def test_a_chain_whose_database_forgot_the_order_is_written_in_it(store_chain):
    text = text_of(store_chain(CHAIN))
    assert text.index("id: second") < text.index("when:") < text.index("path: /output/text")
