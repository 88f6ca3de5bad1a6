import pytest

from tests import factories
from tests.tools import catalogs
from tools.catalog.actions import set_enabled
from tools.models import Tool


def test_a_catalog_in_order_is_done(typed, here):
    assert (typed("lint_tools", *here).code, typed("lint_tools", *here).out) == (
        0,
        "Nothing to say.\n",
    )


def test_warnings_alone_are_no_failure(typed, organization, here):
    catalogs.workflow(organization)
    ran = typed("lint_tools", *here)
    assert (ran.code, ran.err) == (0, "")
    assert "WARNING  silent_reset\n  text-completion moves a workflow back" in ran.out
    assert ran.out.endswith("0 errors, 3 warnings, 2 for your information.\n")


def test_an_error_for_these_groups_is_a_failure(typed, organization, here):
    catalogs.workflow(organization)
    for tool in Tool.objects.present().filter(organization=organization, type="builtin"):
        set_enabled(
            tool=tool, enabled=False, by=factories.by(organization)
        )  # some are part of the graph
    ran = typed("lint_tools", *here, "--group", "library", "compute", "--json")
    assert ran.code == 1
    first = ran.json["results"][0]
    assert (first["code"], first["state"]) == ("dead_end", "results")


def test_groups_of_agents_count(typed, organization, here):
    factories.tool(organization, "lonely", group=["x"])
    factories.agent(organization, groups=["*"])
    assert "seen_by_nobody" not in typed("lint_tools", *here).out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--organization", "No Slug"], 2),
        (["--group"], 2),
        (["--colour"], 2),
        (["--organization", "nowhere"], 1),
    ],
)
def test_bad_usage_is_two_and_a_refusal_one(typed, db, words, code):
    assert typed("lint_tools", *words).code == code
