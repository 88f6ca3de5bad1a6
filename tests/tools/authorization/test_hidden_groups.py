"""Refusals and `explain` disclose no group to an agent that was not granted it."""

from tests import factories
from tests.tools.catalog.test_group_openings import closed_now
from tests.tools.shapes import check_error
from tools.catalog.groups import save_group


def test_a_refusal_names_no_group_that_was_not_granted(organization, api, agent):
    factories.tool(organization, "hidden", group=["secret-desk", "default"])
    answer = api.execute("hidden", {"text": "x"}, group=["read-only"])
    refusal = check_error(answer, 403)
    assert "secret-desk" not in str(refusal)


def test_a_closed_group_is_named_to_those_alone_who_hold_it(organization, api):
    save_group(
        organization=organization, name="secret-desk", by=factories.actor(organization),
        parent="default", schedule=closed_now(),
    )  # fmt: skip
    factories.tool(organization, "hidden", group=["secret-desk"])
    refusal = check_error(api.execute("hidden", {"text": "x"}, group=["default"]), 403)
    assert "secret-desk" not in str(refusal)
