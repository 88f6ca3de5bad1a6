"""Writing a tool in the browser, and changing one."""

import pytest
from django.test import Client

from tests import factories
from tests.ui.pages import fields, form_fields, htmx, inline_code, notes, text
from tools.models import Organization, Tool

SOURCE = "def main(parameters):\n    return parameters\n"


def answers(**more: str) -> dict[str, str]:
    """What a browser sends of a form with the required fields only."""
    return {
        "type": "code", "name": "fresh", "description": "Says it again.", "category": "System",
        "language": "python", "entry_point": "main", "source": SOURCE, "group_kind": "default",
        "available_in_states_kind": "default", "delivery": "external",
        "argument_validation": "enforce", "max_execution_time": "PT30S",
        "max_output_size": "1000", "required_isolation": "Standard",
        "cost_per_invocation": "0", "allow_side_effects": "yes", "arguments": "0", "do": "save",
    } | more  # fmt: skip


def argument(at: int, name: str, **more: str) -> dict[str, str]:
    cells = {"name": name, "type": "String", "description": f"The {name}."} | more
    return {f"argument-{at}-{key}": value for key, value in cells.items()}


def saved(name: str = "fresh") -> dict:
    """Of the newest of that name: other tests' organizations stay."""
    version = Tool.objects.filter(name=name).latest("created_at").version
    assert version is not None
    return version.definition


def test_a_tool_written_in_the_browser_is_in_the_catalog(admin_client: Client) -> None:
    sent = answers(arguments="2") | argument(0, "text", required="yes") | argument(1, "tone")
    response = admin_client.post("/editor/", sent)
    assert response["Location"] == "/tools/fresh/"
    assert [item["name"] for item in saved()["parameters"]] == ["text", "tone"]
    assert saved()["input_schema"]["required"] == ["text"]


def test_a_bound_beyond_2_to_the_53_is_saved_exactly(admin_client: Client) -> None:
    schema = '{"type": "integer", "maximum": 9223372036854775807}'
    admin_client.post("/editor/", answers(output_schema=schema))
    assert saved()["output_schema"]["maximum"] == 2**63 - 1


@pytest.mark.parametrize(
    ("kind", "names", "read"),
    [("default", "", None), ("these", "a, b ", ["a", "b"]), ("none", "a", [])],
)
def test_absent_given_and_empty_are_three_things(
    admin_client: Client, kind: str, names: str, read: list[str] | None
) -> None:
    sent = answers(group_kind=kind, group=names) | {
        "available_in_states_kind": kind,
        "available_in_states": names,
    }
    admin_client.post("/editor/", sent)
    assert saved()["group"] == saved()["available_in_states"] == read


def test_each_wrong_field_says_so_and_nothing_is_saved(
    admin_client: Client, organization: Organization
) -> None:
    sent = answers(name="not a name", max_execution_time="soon", rate_limit_per_minute="many")
    sent |= argument(0, "9lives", default="{") | {"arguments": "1"}
    page = text(response := admin_client.post("/editor/", sent))
    assert response.status_code == 400
    assert page.count('aria-invalid="true"') >= 3
    assert 'value="not a name"' in page
    assert not Tool.objects.filter(organization=organization, name="not a name").exists()


def test_flaws_of_an_implementation_stand_at_its_own_field(admin_client: Client) -> None:
    page = text(admin_client.post("/editor/", answers(source="def other(p):\n    return 1\n")))
    assert "main(parameters)" in notes(page)["flaw-source"][0]
    assert 'id="i-source"' in page and "def other(p)" in fields(page)["source"]


@pytest.mark.parametrize(
    ("do", "order"),
    [("up 1", ["b", "a"]), ("down 0", ["b", "a"]), ("remove 0", ["b"]), ("add", ["a", "b", ""]),
     ("up 0", ["a", "b"]), ("remove 99", ["a", "b"])],
)  # fmt: skip
def test_arguments_are_moved_without_saving(
    admin_client: Client, organization: Organization, do: str, order: list[str]
) -> None:
    sent = answers(do=do, arguments="2") | argument(0, "a", enum='["x"]') | argument(1, "b")
    page = text(admin_client.post("/editor/", sent, headers=htmx("editor")))
    found = [fields(page)[f"argument-{at}-name"] for at in range(len(order))]
    assert found == order and f'name="arguments" value="{len(order)}"' in page
    assert not Tool.objects.filter(organization=organization, name="fresh").exists()


def test_the_form_shows_what_the_tool_says_and_saving_it_unchanged_changes_nothing(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization, group=["g"], metadata={"kept": 1})
    page = text(admin_client.get("/editor/echo/"))
    assert 'value="echo"' in page and 'value="g"' in page
    assert saved("echo")["metadata"] == {"kept": 1}
    assert tool.versions.count() == 1


def test_a_change_is_a_new_version_that_keeps_what_the_form_does_not_ask(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization, metadata={"kept": 1})
    sent = answers(name="echo", description="Another.")
    assert admin_client.post("/editor/echo/", sent).status_code == 302
    assert saved("echo")["description"] == "Another." and saved("echo")["metadata"] == {"kept": 1}
    assert tool.versions.count() == 2


def test_a_tool_that_was_changed_meanwhile_is_shown_in_the_form_that_htmx_sent(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization)
    before = form_fields(admin_client.get("/editor/echo/"))
    admin_client.post("/editor/echo/", before | {"title": "Theirs"})
    mine = before | {"description": "Mine."} | argument(0, "mine") | {"arguments": "1"}
    answer = admin_client.post("/editor/echo/", mine, headers=htmx("editor"))
    assert (answer.status_code, answer["HX-Retarget"]) == (409, "#editor")
    shown = fields(text(answer))
    assert "conflict" in notes(answer) and "<html" not in text(answer)
    assert (shown["title"], shown["description"]) == ("Theirs", "Mine.")
    assert shown["argument-0-name"] == "mine" and "name: mine" in shown["arguments-text"]
    again = admin_client.post("/editor/echo/", shown, headers=htmx("editor"))
    assert again["HX-Redirect"] == "/tools/echo/"
    assert (saved("echo")["title"], saved("echo")["description"]) == ("Theirs", "Mine.")


def test_what_would_change_is_shown_before(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization)
    sent = answers(name="echo", description="Another.", do="compare")
    page = text(admin_client.post("/editor/echo/", sent))
    assert 'id="compared"' in page and "Another." in page
    assert tool.versions.count() == 1


def test_a_built_in_tool_is_not_written_here(admin_client: Client) -> None:
    assert admin_client.get("/editor/read_file/").status_code == 409


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "odd",
    [{"arguments": "99999999"}, {"arguments": "x"}, {"do": "up x"}, {"do": "jump"},
     {"type": "builtin"}, {"name": "a\x00b"}, {"source": "\x00"}, {"output_schema": "[" * 5000},
     {"max_output_size": "9" * 400}, {"argument-0-type": "None", "arguments": "1"}],
)  # fmt: skip
def test_nothing_a_browser_can_send_is_an_error_of_ours(
    admin_client: Client, odd: dict[str, str]
) -> None:
    response = admin_client.post("/editor/", answers(**odd))
    assert response.status_code in {200, 302, 400} and inline_code(response) == []
