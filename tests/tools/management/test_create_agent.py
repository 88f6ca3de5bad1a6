from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tools.models import Agent, Organization, Tool


def test_the_printed_token_works_at_once(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--json")
    assert ran.code == 0
    assert Api(ran.json["token"]).get("/tools").status_code == 200


def test_without_more_an_agent_is_granted_default_and_nothing_else(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--json")
    assert (ran.json["groups"], ran.json["permissions"]) == (["default"], [])


def test_groups_tools_and_permissions_are_granted_as_named(typed, organization):
    grants = ["--group", "read-only", "write", "--group", "x", "--tool", "read_file"]
    ran = typed(
        *("create_agent", "bot", "--organization", organization.slug, *grants),
        *("--permission", "tool.web", "--json"),
    )
    assert ran.json["groups"] == ["read-only", "write", "x"]
    assert (ran.json["tools"], ran.json["permissions"]) == (["read_file"], ["tool.web"])


def test_a_tool_group_is_granted_instead_of_every_tool(typed, organization):
    words = ["--group", "write", "--tool-group", "write"]
    ran = typed("create_agent", "bot", "--organization", organization.slug, *words, "--json")
    assert (ran.json["tools"], ran.json["tool_groups"]) == ([], ["write"])
    listed = Api(ran.json["token"]).get("/tools?group=write").json()["results"]
    assert [tool["name"] for tool in listed] == ["write_file"]


def test_the_text_shows_the_token_once_with_a_line_of_curl(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--group", "write")
    last = ran.out.splitlines()[-1]
    assert last.startswith("curl -H 'Authorization: Bearer tcr_")
    assert last.endswith("/api/v1/tools?group=write'")
    assert ran.err == ""


def test_group_names_are_quoted_in_the_line_of_curl(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--group", "a b'&c")
    assert ran.out.splitlines()[-1].endswith("/api/v1/tools?group=a%20b%27%26c'")


def test_a_new_organization_is_made_with_the_built_in_tools_and_said(typed, db):
    ran = typed("create_agent", "bot", "--organization", "brand-new", "--tier", "Teams")
    made = Organization.objects.get(slug="brand-new")
    assert made.tier.name == "Teams"
    assert Tool.objects.filter(organization=made, name="read_file").exists()
    assert "The organization brand-new was made, with the tier Teams." in ran.out


def test_tier_sets_the_tier_of_an_organization_that_is_there(typed, organization):
    slug = organization.slug
    ran = typed("create_agent", "bot", "--organization", slug, "--tier", "Core", "--json")
    organization.refresh_from_db()
    assert organization.tier.name == ran.json["tier"] == "Core"
    assert ran.json["notes"] == [
        f"The tier of the organization {slug} is now Core; it was Enterprise."
    ]


def test_who_typed_it_is_evidence(typed, organization):
    typed("create_agent", "bot", "--organization", organization.slug)
    record = AuditRecord.objects.get(organization=organization.slug, code="ADMIN.AGENT_CREATE")
    assert record.actor.startswith("command:")
    assert record.request_id.startswith("command-")


def test_a_second_agent_of_that_name_is_refused_in_one_sentence(typed, organization):
    factories.agent(organization, "bot")
    ran = typed("create_agent", "bot", "--organization", organization.slug)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "There is an agent bot already.\n"


def test_a_refusal_leaves_nothing_behind(typed, db):
    ran = typed("create_agent", "bot", "--organization", "brand-new", "--tool", "no_such_tool")
    assert ran.code == 1
    assert not Organization.objects.filter(slug="brand-new").exists()
    assert not Agent.objects.filter(slug="bot", organization__slug="brand-new").exists()


def test_an_unknown_tier_is_refused_and_the_known_ones_are_named(typed, organization):
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--tier", "Gold")
    assert ran.code == 1
    assert "only: Core, WriterPro, Teams, Enterprise" in ran.err


def test_errors_are_json_where_json_was_asked_for(typed, organization):
    factories.agent(organization, "bot")
    ran = typed("create_agent", "bot", "--organization", organization.slug, "--json")
    assert ran.error["code"] == "agent_exists"


def test_a_name_that_is_no_slug_is_bad_usage(typed, db):
    ran = typed("create_agent", "Not A Slug")
    assert ran.code == 2
    assert "is no slug" in ran.err
