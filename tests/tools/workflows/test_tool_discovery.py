"""`find_tools` lists only tools that the caller may use, ranked, with their token counts."""

import pytest

from tests import factories
from tests.tools.execution.in_process_worker import work_off
from tools.definitions.tool import definition_tokens, estimate_tokens
from tools.execution import answer
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("without_workers")


@pytest.fixture
def agent(organization):
    factories.install(organization)
    factories.tool(organization, "weather", description="Tells the weather of a town.",
                   capabilities=["weather", "read"])  # fmt: skip
    factories.tool(organization, "vaulted", description="Tells the weather too.", group=["vault"])
    return factories.agent(organization, groups=["default", "composition"])


def find_tools(agent, **parameters):
    call = factories.call("find_tools", parameters, group=["default", "composition"])
    execution = answer.execute(caller=factories.caller(agent), call=call, wait_s=0)
    work_off(agent.organization)
    return Execution.objects.get(pk=execution.pk)


def names(execution):
    return [tool["name"] for tool in execution.output["tools"]]


def test_the_best_comes_first_with_what_it_takes_and_costs(agent):
    tool = find_tools(agent, query="what is the weather like").output["tools"][0]
    assert tool["name"] == "weather"
    assert tool["parameters"]["required"] == ["text"]
    assert tool["tokens"] > 10


def test_what_the_caller_may_not_use_is_not_found(agent):
    assert "vaulted" not in names(find_tools(agent, query="weather", limit=25))


def test_capabilities_must_all_be_there(agent):
    assert names(find_tools(agent, capabilities=["weather"])) == ["weather"]
    assert names(find_tools(agent, capabilities=["weather", "ghost"])) == []


def test_without_words_all_are_counted_and_some_are_shown(agent):
    output = find_tools(agent, limit=1).output
    assert len(output["tools"]) == 1 < output["total"]
    assert output["tokens_of_all"] > output["tools"][0]["tokens"]


def test_the_pair_does_not_find_itself(agent):
    assert not {"find_tools", "call_tool"} & set(
        names(find_tools(agent, query="find a tool", limit=25))
    )


def test_a_price_grows_with_the_definition():
    definition = {"name": "a", "description": "b", "input_schema": {}}
    longer = definition | {"description": "Some words more than before."}
    assert 0 < definition_tokens(definition) < definition_tokens(longer)
    assert estimate_tokens("international 2026, ok") == 3 + 2 + 1 + 1
