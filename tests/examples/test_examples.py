"""The examples load with the API as they stand, and do what they say."""

import json
from pathlib import Path

import pytest

from tests import factories
from tests.crib import CHECKOUT
from tests.stubs import llm
from tools.catalog.workflow.chain_texts import read_text
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.models import Execution

EXAMPLES = CHECKOUT / "examples"
DEFINITIONS = sorted(
    path for path in EXAMPLES.glob("*.json") if "type" in json.loads(path.read_text("utf-8"))
)  # the others hold items, for which tests/journeys/test_tool_services.py stands


@pytest.fixture
def run(organization, admin_api, committed):
    """Load an example with the API and call it through the execution pipeline."""
    agent = factories.agent(organization, groups=["compute"])

    def call(path: Path, parameters):
        definition = json.loads(path.read_text("utf-8"))
        assert admin_api.post("/tools", definition).status_code == 201
        wanted = factories.call(definition["name"], parameters, group=["compute"])
        execution = admit(factories.caller(agent), wanted)
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return call


def test_there_are_examples_and_all_are_canonical_tools(db, admin_api):
    assert DEFINITIONS
    for path in DEFINITIONS:
        assert admin_api.post("/tools", json.loads(path.read_text("utf-8"))).status_code == 201


def test_the_chains_can_be_kept_as_they_stand(organization):
    chains = sorted(EXAMPLES.glob("*.yaml"))
    assert chains
    assert [read_text(organization, one.read_text("utf-8")).flaws for one in chains] == [[]]


def test_the_prompt_is_made_of_its_parameters_and_the_completion_of_its_question(run, settings):
    with llm.serving() as model:
        settings.LLM_BASE_URL, settings.LLM_MODEL = model.url, "any"
        model.echoes()
        parameters = {"text": "It rained.", "reader": "children"}
        summary = run(EXAMPLES / "summarize.json", parameters)
        assert summary.output.startswith(
            "Summarize the text below in at most 3 sentences for child"
        )
        assert summary.output.endswith("Text:\nIt rained.\n")
        answer = run(EXAMPLES / "answer_briefly.json", {"question": "Why?"})
        assert (answer.status, answer.output) == ("Success", "Why?")


def test_the_csv_tool_returns_the_totals_of_the_sales(run):
    text = (EXAMPLES / "sales.csv").read_text("utf-8")
    ended = run(EXAMPLES / "csv_summary.json", {"csv": text})
    assert ended.status == "Success"
    assert ended.output["rows"] == 8
    assert ended.output["columns"] == ["date", "region", "product", "quantity", "price"]
    assert ended.output["totals"] == {
        "quantity": {"sum": 72.0, "mean": 9.0, "min": 2.0, "max": 20.0},
        "price": {"sum": 316.3, "mean": 39.5375, "min": 18.5, "max": 149.0},
    }


def test_the_csv_tool_says_which_row_is_ragged(run):
    ended = run(EXAMPLES / "csv_summary.json", {"csv": "a,b\n1,2\n3"})
    assert (ended.status, ended.error_code) == ("Failed", "RAGGED_ROW")
    assert ended.error_message == "Row 3 has 1 cells, the first row 2."
