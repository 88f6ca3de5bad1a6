"""Chains over REST: written as JSON or YAML, validated, rehearsed and executed; their runs are
read."""

import pytest
from django.test import Client

from tests import factories
from tests.tools.shapes import check_error, check_execution
from tools.models import Execution, Tool

pytestmark = pytest.mark.usefixtures("committed", "crib")
SAYS = "def main(parameters):\n    return {'said': parameters['text']}\n"
TEXT = {"name": "text", "type": "String", "description": "Anything.", "required": True}
YAML = """
name: told
description: Says it twice.
parameters:
  - {name: text, type: String, description: What., required: true}
steps:
  - id: first
    tool_name: say
    parameters: {text: {$input: /text}}
  - id: second
    tool_name: say
    parameters: {text: {$step: first, path: /output/said}}
output: {$step: second, path: /output/said}
"""


@pytest.fixture(autouse=True)
def say(organization):
    factories.tool(organization, "say", implementation={"source": SAYS})


def step(name="one", **more):
    return {"id": name, "tool_name": "say", "parameters": {"text": {"$input": "/text"}}} | more


def chain(*steps, name="told", **more):
    return {
        "name": name,
        "description": "A chain.",
        "parameters": [TEXT],
        "steps": list(steps or [step()]),
    } | more


def written(api, text):
    return Client().post(
        "/api/v1/chains",
        data=text,
        content_type="application/yaml",
        headers={"Authorization": f"Bearer {api.token}"},
    )


def test_it_is_written_read_replaced_and_deleted(admin_api):
    made = admin_api.post("/chains", chain())
    assert (made.status_code, made.headers["Location"]) == (201, "/api/v1/chains/told")
    shown = admin_api.get("/chains/told").json()
    assert [one["id"] for one in shown["steps"]] == ["one"]
    changed = admin_api.put("/chains/told", chain(step("one"), step("two")))
    assert [one["id"] for one in changed.json()["steps"]] == ["one", "two"]
    assert admin_api.delete("/chains/told").status_code == 204
    check_error(admin_api.get("/chains/told"), 404)


@pytest.mark.parametrize(
    "calls",
    [
        {"tool_name": "spare"},
        {"compensate_with": {"tool_name": "spare", "parameters": {"text": "x"}}},
    ],
)
def test_a_tool_that_chains_call_is_not_deleted(admin_api, organization, calls):
    factories.tool(organization, "spare")
    admin_api.post("/chains", chain(step(**calls)))
    admin_api.post("/chains", chain(step("first"), step("last", **calls), name="also"))
    error = check_error(admin_api.delete("/tools/spare"), 409, "has_dependants")
    assert error["details"]["dependants"] == ["also", "told"]
    for name in ("also", "told"):
        assert admin_api.delete(f"/chains/{name}").status_code == 204
    assert admin_api.delete("/tools/spare").status_code == 204


def test_a_chain_that_chains_call_is_not_deleted(admin_api):
    admin_api.post("/chains", chain(name="inner"))
    admin_api.post("/chains", chain(step(tool_name="inner")))
    error = check_error(admin_api.delete("/chains/inner"), 409, "has_dependants")
    assert error["details"]["dependants"] == ["told"]
    admin_api.put("/chains/told", chain())
    assert admin_api.delete("/chains/inner").status_code == 204


def test_what_is_shown_can_be_sent_back(admin_api):
    admin_api.post("/chains", chain(step(on_error="compensate"), output={"$step": "one"}))
    shown = admin_api.get("/chains/told").json()
    assert admin_api.put("/chains/told", shown).json()["version"] == shown["version"]


def test_it_may_be_written_as_yaml(admin_api, api):
    made = written(admin_api, YAML)
    assert made.status_code == 201, made.json()
    run = api.post("/chains/told/execute", {"parameters": {"text": "x"}}).json()
    assert run["execution"]["output"] == "x"


def test_yaml_that_is_none_is_refused(admin_api, subtests):
    for text in ["a: [", "a: 1\n---\nb: 2\n", "&a [*a]", "", "\x00"]:
        with subtests.test(text=text):
            assert written(admin_api, text).status_code == 400


FLAWS = [
    ({"steps": []}, "steps"),
    ({"steps": [step(tool_name="ghost")]}, "steps.0.tool_name"),
    ({"steps": [step(tool_name="told")]}, "steps.0.tool_name"),
    ({"steps": [step(), step()]}, "steps.1.id"),
    ({"steps": [step("No")]}, "steps.0.id"),
    ({"steps": [step(parameters={"text": {"$step": "later"}})]}, "steps.0.parameters.text"),
    ({"steps": [step(parameters={"text": {"$item": ""}})]}, "steps.0.parameters.text"),
    ({"steps": [step(parameters={"text": {"$text": "{{ x }}"}})]}, "steps.0.parameters.text"),
    ({"steps": [step(when={"eval": "1"})]}, "steps.0.when.eval"),
    ({"steps": [step(when={"equals": [1]})]}, "steps.0.when.equals"),
    ({"steps": [step(when={"succeeded": ["one"]})]}, "steps.0.when.succeeded"),
    ({"steps": [step(when={"failed": {"one": 1}})]}, "steps.0.when.failed"),
    ({"steps": [step(on_error="panic")]}, "steps.0.on_error"),
    ({"steps": [step(parallel=2)]}, "steps.0.parallel"),
    ({"steps": [step(retries={"attempts": 99})]}, "steps.0.retries.attempts"),
    ({"steps": [step(timeout="soon")]}, "steps.0.timeout"),
    ({"steps": [step(nonsense=1)]}, "steps.0.nonsense"),
    ({"output": {"$step": "ghost"}}, "output"),
    ({"delivery": "external"}, "delivery"),
]


def test_each_flaw_is_named_by_its_place(admin_api, subtests):
    for wrong, field in FLAWS:
        with subtests.test(wrong=wrong, field=field):
            body = check_error(admin_api.post("/chains", chain() | wrong), 400)
            assert field in [flaw["field"] for flaw in body["details"]["errors"]], body


def test_steps_that_cannot_fit_are_refused_with_the_path_that_does_not(admin_api, organization):
    number = {"name": "number", "type": "Integer", "description": "One.", "required": True}
    factories.tool(organization, "count", parameters=[number], output_schema={"type": "integer"})
    wrong = {"id": "two", "tool_name": "say", "parameters": {"text": {"$step": "one"}}}
    first = {"id": "one", "tool_name": "count", "parameters": {"number": 1}}
    body = check_error(admin_api.post("/chains", chain(first, wrong)), 400)
    (flaw,) = body["details"]["errors"]
    assert flaw["field"] == "steps.1.parameters.text"
    assert flaw["message"] == "is integer, and string is taken"


def test_steps_that_may_not_fit_are_a_warning(admin_api):
    last = step("two", parameters={"text": {"$step": "one", "path": "/output/maybe"}})
    made = admin_api.post("/chains", chain(step("one"), last)).json()
    assert "steps.1.parameters.text" in [one["field"] for one in made["warnings"]]


def test_chains_that_lead_back_to_themselves_are_refused(admin_api):
    admin_api.post("/chains", chain(name="inner"))
    admin_api.post("/chains", chain(step(tool_name="inner"), name="outer"))
    body = check_error(
        admin_api.put("/chains/inner", chain(step(tool_name="outer"), name="inner")), 400
    )
    assert "outer → inner" in body["details"]["errors"][0]["message"]


@pytest.mark.part("calls")
def test_a_run_is_answered_with_the_calls_of_its_steps(admin_api, api):
    admin_api.post("/chains", chain(step("one"), step("two")))
    answer = api.post("/chains/told/execute", {"parameters": {"text": "x"}})
    body = answer.json()
    assert (answer.status_code, body["status"]) == (200, "Success")
    assert [one["place"] for one in body["steps"]] == ["one", "two"]
    check_execution(body["execution"], "Success")
    assert api.get(f"/chain-runs/{body['run_id']}").json() == body


def test_it_is_called_as_any_tool_too(admin_api, api):
    admin_api.post("/chains", chain())
    body = check_execution(api.execute("told", {"text": "x"}).json(), "Success")
    assert body["output"] == {"said": "x"}
    assert "told" in [tool["name"] for tool in api.get("/tools").json()["results"]]


def test_only_chains_are_listed_and_run_here(admin_api, api):
    admin_api.post("/chains", chain())
    assert [one["name"] for one in api.get("/chains").json()["results"]] == ["told"]
    check_error(api.get("/chains/say"), 404)
    check_error(api.post("/chains/say/execute", {"parameters": {"text": "x"}}), 404)
    execution = api.execute("say", {"text": "x"}).json()["execution_id"]
    check_error(api.get(f"/chain-runs/{execution}"), 404)


def test_a_rehearsal_calls_nothing_and_tells_what_would_be(admin_api, api, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    factories.tool(organization, "vaulted", group=["vault"])
    admin_api.post(
        "/chains",
        chain(
            step("one"),
            step("two", parameters={"text": {"$step": "one", "path": "/output/said"}}),
            step("three", tool_name="careful", when={"equals": [{"$input": "/text"}, "no"]}),
            step("four", tool_name="vaulted", when={"succeeded": "one"}),
            step("five", for_each=["a", "b"], parameters={"text": {"$item": ""}}),
        ),
    )
    before = Execution.objects.filter(organization=organization).count()
    answer = api.post("/chains/told/rehearse", {"parameters": {"text": "x"}})
    one, two, three, four, five = answer.json()["steps"]
    assert Execution.objects.filter(organization=organization).count() == before
    assert (one["runs"], one["parameters"], one["refused"]) == ("yes", {"text": "x"}, None)
    assert "$unknown" in two["parameters"]["text"]
    assert (three["runs"], bool(three["confirmation"])) == ("no", True)
    assert (four["runs"], four["refused"]["code"]) == ("unknown", "tool_not_in_group")
    assert (five["items"], five["parameters"], five["errors"]) == (2, {"text": "a"}, [])


def test_a_rehearsal_tells_of_groups_that_its_caller_was_not_granted(admin_api, api, organization):
    admin_api.post("/chains", chain(step("one")))
    sent = {"parameters": {"text": "x"}, "group": ["default", "vault"]}
    reported = api.post("/chains/told/rehearse", sent).json()
    assert reported["steps"][0]["refused"]["code"] == "group_not_granted"


def test_a_rehearsal_tells_of_the_chain_itself(admin_api, api):
    admin_api.post("/chains", chain(requires_confirmation=True))
    good = api.post("/chains/told/rehearse", {"parameters": {"text": "x"}}).json()
    assert (good["refused"], bool(good["confirmation"]), good["errors"]) == (None, True, [])
    wrong = api.post("/chains/told/rehearse", {"parameters": {"text": 7}}).json()
    assert [error["place"] for error in wrong["errors"]] == ["/text"]
    assert wrong["steps"] == []


def test_a_rehearsal_tells_of_what_undoes_and_of_what_is_no_loop(admin_api, api, organization):
    factories.tool(organization, "vaulted", group=["vault"])
    undo = {"tool_name": "vaulted", "parameters": {"text": "x"}}
    loop = {"for_each": {"$input": "/many/list"}, "parameters": {"text": "x"}}
    many = {"name": "many", "type": "Object", "description": "What.", "required": True}
    steps = [step("one", on_error="compensate", compensate_with=undo), step("two", **loop)]
    admin_api.post("/chains", chain(*steps, parameters=[TEXT, many]))

    def rehearsed(many):
        sent = {"parameters": {"text": "x", "many": {"list": many}}}
        return api.post("/chains/told/rehearse", sent).json()["steps"]

    one, two = rehearsed("no list")
    assert one["compensation"]["refused"]["code"] == "tool_not_in_group"
    assert two["errors"] == [{"place": "for_each", "message": "is no list"}]
    assert rehearsed([1] * 501)[1]["errors"][0]["place"] == "for_each"


def test_who_may_not_use_a_chain_does_not_see_it(admin_api, organization):
    admin_api.post("/chains", chain(group=["vault"]))
    other = factories.api(factories.agent(organization, groups=["default"]))
    check_error(other.get("/chains/told"), 404)
    check_error(other.post("/chains/told/rehearse", {}), 404)
    assert other.get("/chains").json()["results"] == []
    assert Tool.objects.present().filter(organization=organization, name="told").exists()
