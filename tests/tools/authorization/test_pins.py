"""Version pins: the tool version that an agent or a session uses."""

import pytest

from tests import factories
from tests.api import Api
from tests.tools.database import tamper
from tools.authorization import pins
from tools.catalog import actions as catalog
from tools.catalog.registry import registry
from tools.catalog.signatures import keys
from tools.errors import Forbidden, NotFound, Refused
from tools.workflows import session_actions

pytestmark = pytest.mark.django_db


@pytest.fixture
def echo(organization):
    """The tool's second version, which requires another parameter."""
    tool = factories.tool(organization)
    definition = factories.definition(
        parameters=[{"name": "more", "type": "String", "description": "d", "required": True}]
    )
    return catalog.update_tool(tool=tool, definition=definition, by=factories.actor(organization))


def pin(agent, label="1.0.0"):
    pins.set_pins(agent=agent, pins={"echo": label}, by=factories.actor(agent.organization))


def version_of(execution):
    return execution.tool_version.label


def test_an_agent_keeps_to_its_version_and_others_do_not(agent, organization, echo):
    pin(agent)
    assert version_of(factories.execution(agent)) == "1.0.0"
    other = factories.agent(organization)
    assert version_of(factories.execution(other, more="x")) == "2.0.0"
    assert pins.snapshot_for(factories.caller(agent)).tools["echo"].version == "1.0.0"
    pin(agent, None)
    assert pins.pins_of(agent) == {}
    assert version_of(factories.execution(agent, more="x")) == "2.0.0"


def test_a_pin_is_taken_from_one_agent_alone(agent, organization, echo):
    other = factories.agent(organization)
    pin(agent)
    pin(other)
    pin(agent, None)
    assert (pins.pins_of(agent), pins.pins_of(other)) == ({}, {"echo": "1.0.0"})


def test_a_sessions_pin_wins_over_its_agents(agent, echo):
    pin(agent)
    session, _ = session_actions.open_session(
        caller=factories.caller(agent), group=None, state=None, pins={"echo": "2.0.0"}
    )
    assert pins.session_pins(session) == {"echo": "2.0.0"}
    inside = factories.execution(agent, session=str(session.pk), more="x")
    assert version_of(inside) == "2.0.0"


def test_what_closes_the_tool_closes_its_pins(agent, organization, echo):
    pin(agent)
    catalog.set_enabled(tool=echo, enabled=False, by=factories.actor(organization))
    with pytest.raises(Refused):
        factories.execution(agent)
    catalog.delete_tool(tool=echo, by=factories.actor(organization))
    with pytest.raises(NotFound):
        factories.execution(agent)


def test_a_pinned_version_that_was_altered_is_refused(agent, organization, echo):
    pin(agent)
    tamper(echo.versions.get(number=1), description="Other.")
    registry.forget()
    with pytest.raises(Refused) as refusal:
        factories.execution(agent)
    assert refusal.value.code == "SIGNATURE_INVALID"


def test_a_pinned_version_whose_key_is_distrusted_is_refused(agent, organization, echo):
    pin(agent)
    by = factories.actor(organization)
    keys.distrust_key(organization=organization, key_id=echo.version.key_id, by=by)
    with pytest.raises(Refused) as refusal:
        factories.execution(agent)
    assert refusal.value.code == "SIGNATURE_INVALID"


def test_no_session_goes_back_to_a_version_that_asks_less(agent, organization, echo):
    wanted = echo.version.definition | {"requires_confirmation": True}
    catalog.update_tool(tool=echo, definition=wanted, by=factories.actor(organization))
    with pytest.raises(Forbidden):
        session_actions.open_session(
            caller=factories.caller(agent), group=None, state=None, pins={"echo": "1.0.0"}
        )


@pytest.mark.parametrize(
    "terms",
    [
        {"requires_confirmation": True},
        {"rate_limit_per_minute": 3},
        {"delivery": "idempotent"},
        {"output_schema": {"type": "object", "properties": {"text": {"x-sensitive": True}}}},
        {"cost_per_invocation": "0.5"},
    ],
)
def test_who_may_not_change_tools_pins_no_agent_to_a_version_that_asks_less(
    agent, organization, echo, terms
):
    wanted = echo.version.definition | terms
    catalog.update_tool(tool=echo, definition=wanted, by=factories.actor(organization))
    person = factories.person(organization)
    factories.permit(person, "change_agent", "view_agent")
    api = Api(factories.token(person, scopes=["read", "manage"]))
    answer = api.patch(f"/agents/{agent.slug}", {"pins": {"echo": "2.0.0"}})
    assert (answer.status_code, answer.json()["code"]) == (403, "pin_not_allowed")
    factories.permit(person, "change_tool")
    answer = api.patch(f"/agents/{agent.slug}", {"pins": {"echo": "2.0.0"}})
    assert answer.json()["pins"] == {"echo": "2.0.0"}


def test_pins_are_shown_back(agent, admin_api, echo):
    answer = admin_api.patch(f"/agents/{agent.slug}", {"pins": {"echo": "1.0.0"}})
    assert answer.json()["pins"] == {"echo": "1.0.0"}
    api = factories.api(agent)
    opened = api.post("/sessions", {"pins": {"echo": "2.0.0"}})
    assert opened.json()["pins"] == {"echo": "2.0.0"}
    assert api.get("/tools/echo").json()["version"] == "1.0.0"
    assert admin_api.patch(f"/agents/{agent.slug}", {"pins": {"echo": "9.0.0"}}).status_code == 404
