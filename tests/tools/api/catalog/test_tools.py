"""`GET /tools`: which tools are listed for a request and a caller."""

from collections import defaultdict

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools import catalogs
from tests.tools.api.test_generated_bodies import addresses
from tests.tools.shapes import check_error
from tools import metrics
from tools.catalog.actions import delete_tool
from tools.models import Execution, ToolGroup


def names(response):
    assert response.status_code == 200, response.content
    return [tool["name"] for tool in response.json()["results"]]


# Specification S1, 5.2, corrected by ruling 1.
EXAMPLES = [
    ("group=read-only&group=library&state=undefined", ["knowledge-query", "text-completion"]),
    (
        "group=advanced&group=compute&group=write&state=analysis",
        ["complex-analysis", "graph-update"],
    ),
    ("group=admin&state=results", ["reset-workflow"]),
    ("group=admin&state=analysis", ["graph-update", "reset-workflow"]),
    ("group=library&group=compute&state=undefined", ["knowledge-query"]),
    ("group=library&group=compute&state=analysis", ["complex-analysis", "graph-update"]),
    ("group=library&group=compute&state=results", []),
    ("group=text&state=*", ["text-completion"]),
    ("group=&state=undefined", []),
    ("", []),
]


def test_the_examples_of_the_specification_hold(organization, subtests):
    catalogs.workflow(organization)
    agent = factories.agent(organization, groups=[*catalogs.EVERY_GROUP, "default"])
    api = Api(factories.token(agent.service_account))
    ours = {name for name, *_ in catalogs.WORKFLOW}
    for query, expected in EXAMPLES:
        with subtests.test(query=query, expected=expected):
            assert [n for n in names(api.get(f"/tools?{query}")) if n in ours] == expected


def test_an_absent_group_is_the_default_group(api, organization):
    factories.tool(organization, "plain")
    factories.tool(organization, "grouped", group=["read-only"])
    assert names(api.get("/tools")) == ["plain"]


def test_an_empty_group_shows_nothing(api, organization):
    factories.tool(organization, "plain")
    assert names(api.get("/tools?group=")) == []


@pytest.mark.parametrize(
    ("query", "beyond"), [("group=*", "*"), ("group=read-only&group=admin", "admin")]
)
def test_one_group_beyond_the_grants_refuses_the_whole_list(api, query, beyond):
    body = check_error(api.get(f"/tools?{query}"), 403, "group_not_granted")
    assert body["details"]["groups"] == [beyond]


def test_a_wildcard_grant_covers_every_group_and_tools_without_one(organization):
    factories.tool(organization, "hidden", group=[])
    agent = factories.agent(organization, groups=["*"])
    api = Api(factories.token(agent.service_account))
    assert "hidden" in names(api.get("/tools?group=*"))
    assert names(api.get("/tools?group=read-only")) == ["read_file", "validate_content"]


@pytest.mark.parametrize(
    ("states", "query", "there"),
    [([], "&state=*", False), (["analysis"], "", False), (["analysis"], "&state=analysis", True)],
)
def test_the_wildcard_never_bypasses_the_state(organization, states, query, there):
    factories.tool(organization, "later", available_in_states=states)
    agent = factories.agent(organization, groups=["*"])
    api = Api(factories.token(agent.service_account))
    assert ("later" in names(api.get(f"/tools?group=*{query}"))) is there


def test_a_refused_list_is_audited_and_counted(api, organization):
    before = metrics.escalation_attempts.labels("group")._value.get()
    api.get("/tools?group=read-only&group=admin")
    record = AuditRecord.objects.get(organization=organization.slug, code="LIST.DENY")
    assert record.details["requested_groups"] == ["admin", "read-only"]
    assert "admin" not in record.details["granted_groups"]
    assert metrics.escalation_attempts.labels("group")._value.get() == before + 1


def test_an_explanation_beyond_the_grants_is_refused_and_audited(api, organization):
    assert api.get("/tools/explain?group=admin").status_code == 403
    assert AuditRecord.objects.filter(organization=organization.slug, code="LIST.DENY").exists()


def test_an_absent_group_needs_the_default_grant(organization):
    agent = factories.agent(organization, groups=["read-only"])
    api = Api(factories.token(agent.service_account))
    assert api.get("/tools").status_code == 403


def test_a_granted_group_that_no_user_made_is_a_warning(organization):
    agent = factories.agent(organization, groups=["default", "ghost", "read-only"])
    response = Api(factories.token(agent.service_account)).get("/tools?group=ghost&group=read-only")
    assert names(response) == ["read_file", "validate_content"]
    assert response.json()["warnings"] == ["There is no group ghost; it was ignored."]


@pytest.mark.parametrize(
    ("granted", "group", "shown"),
    [
        ({"groups": ["ghost"]}, "ghost", []),
        ({"groups": ["read-only"], "tools": ["read_file"]}, "read-only", ["read_file"]),
    ],
)
def test_an_agent_sees_only_what_it_was_granted_and_is_there(organization, granted, group, shown):
    agent = factories.agent(organization, **granted)
    own = Api(factories.token(agent.service_account))
    assert names(own.get(f"/tools?group={group}")) == shown


def test_a_strict_agent_is_refused_unknown_groups_by_400(organization):
    agent = factories.agent(organization, groups=["ghost"], strict=True)
    response = Api(factories.token(agent.service_account)).get("/tools?group=ghost")
    assert response.status_code == 400
    assert response.json()["code"] == "group_unknown"


def test_group_names_of_clients_do_not_become_labels_of_metrics(api):
    before = metrics.group_requests.labels("unknown")._value.get()
    api.get("/tools?group=made-up-by-a-client")
    assert metrics.group_requests.labels("unknown")._value.get() == before + 1


def test_a_superuser_asks_for_every_group(admin_api, organization):
    factories.tool(organization, "hidden", group=[])
    assert "hidden" in names(admin_api.get("/tools?group=*"))


def test_a_tool_is_hidden_from_who_lacks_its_permissions(api, organization):
    factories.tool(organization, "risky", required_permissions=["tool.risky"])
    assert names(api.get("/tools")) == []


def test_a_group_hands_its_permissions_to_who_was_granted_it(api, organization):
    factories.tool(organization, "risky", required_permissions=["tool.risky"])
    ToolGroup.objects.filter(organization=organization, name="default").update(
        permissions=["tool.risky"]
    )
    assert names(api.get("/tools")) == ["risky"]


def test_an_agent_cannot_read_a_tool_it_may_not_use(api, organization):
    factories.tool(organization, "secret", group=["admin"])
    assert api.get("/tools/secret").status_code == 404
    assert api.get("/tools/read_file").status_code == 200


def test_the_list_comes_in_the_forms_of_models_endpoints(api, organization):
    schema = factories.tool(organization).version.definition["input_schema"]
    said = {"name": "echo", "description": "Returns what it was given."}
    openai = {"type": "function", "function": {**said, "parameters": schema}}
    assert api.get("/tools?format=openai").json()["results"] == [openai]
    assert api.get("/tools?format=anthropic").json()["results"] == [
        {**said, "input_schema": schema}
    ]
    assert api.get("/tools?format=definition").json() == api.get("/tools").json()


def test_another_form_is_400_and_says_which_there_are(api, subtests):
    for form in ["", "OpenAI", "json", "events"]:
        with subtests.test(form=form):
            error = check_error(api.get(f"/tools?format={form}"), 400)
            assert error["message"] == (
                "format must be one of definition, mcp, openai, anthropic, react, trustgraph."
            )


def test_filters_narrow_the_list(api, organization):
    factories.tool(organization, "csv", description="Reads tables.", capabilities=["read", "table"])
    factories.tool(organization, "pdf", category="Knowledge")
    assert names(api.get("/tools?q=TABLES")) == ["csv"]
    assert names(api.get("/tools?capability=read&capability=table")) == ["csv"]
    assert names(api.get("/tools?category=Knowledge")) == ["pdf"]
    assert api.get("/tools?category=Nonsense").status_code == 400


def test_pages_follow_each_other_and_lead_back(api, organization):
    for number in range(5):
        factories.tool(organization, f"t{number}")
    first = api.get("/tools?page_size=2").json()
    second = api.get(first["next"].partition("/api/v1")[2]).json()
    back = api.get(second["previous"].partition("/api/v1")[2]).json()
    assert [tool["name"] for tool in second["results"]] == ["t2", "t3"]
    assert back["results"] == first["results"]


WRONG_PAGES = [
    "page_size=0", "page_size=201", "page_size=x", "page_size=٣", "cursor=!!", "cursor=bm8",
    "page_size=99999999999999999999",
]  # fmt: skip


def test_a_wrong_page_is_400(api, subtests):
    for query in WRONG_PAGES:
        with subtests.test(query=query):
            assert api.get(f"/tools?{query}").status_code == 400


REFUSED = [
    ({"group": ["admin"]}, "group_not_granted"),
    ({"group": ["*"]}, "group_not_granted"),
    ({"group": []}, "tool_not_in_group"),
    ({}, "tool_not_in_group"),
    ({"group": ["write"]}, "tool_not_in_group"),
    ({"group": ["read-only"], "state": "elsewhere"}, "tool_not_in_state"),
]


def test_a_call_of_a_tool_that_is_not_there_is_refused_audited_and_runs_nothing(
    api, organization, subtests
):
    factories.tool(organization, "here", group=["read-only"], available_in_states=["undefined"])
    for request_, code in REFUSED:
        with subtests.test(request_=request_, code=code):
            response = api.execute("here", {"text": "x"}, **request_)
            assert (response.status_code, response.json()["code"]) == (403, code)
            assert response.json()["status"] == "PermissionDenied"
            execution = Execution.objects.get(pk=response.json()["execution_id"])
            assert (execution.status, execution.started_at) == ("PermissionDenied", None)
            records = AuditRecord.objects.filter(execution_id=execution.pk)
            assert [(r.code, r.outcome, r.reason) for r in records] == [
                ("TOOL.DENY", "denied", code)
            ]


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("mcp", ("inputSchema",)), ("anthropic", ("input_schema",)),
        ("openai", ("function", "parameters")),
    ],
)  # fmt: skip
def test_a_tool_is_formatted_as_models_of_a_kind_take_it(api, organization, form, place):
    factories.tool(organization, "plain")
    (reported,) = api.get(f"/tools?format={form}").json()["results"]
    for name in place:
        reported = reported[name]
    (definition,) = api.get("/tools").json()["results"]
    assert reported == definition["input_schema"]


def test_a_tool_is_formatted_as_text_for_a_prompt(api, organization):
    factories.tool(organization, "plain")
    (reported,) = api.get("/tools?format=react").json()["results"]
    assert (
        reported["text"].startswith("- plain: ") and "text (string; required)" in reported["text"]
    )


@pytest.mark.parametrize(
    "more",
    [
        {"available_in_states": ["undefined"], "state": "late"},
        {"type": "prompt", "implementation": {"template": "Say {text} once more."}},
    ],
)
def test_a_tool_is_formatted_as_an_item_that_an_import_reads_again(
    api, admin_api, organization, more
):
    tool = factories.tool(organization, "plain", group=["default"], **more)
    (item,) = api.get("/tools?format=trustgraph").json()["results"]
    assert item["key"] == "tool/plain" and item["value"]["group"] == ["default"]
    assert item["value"].get("applicable-states") == more.get("available_in_states")
    assert [one["name"] for one in item["value"]["arguments"]] == ["text"]
    delete_tool(tool=tool, by=factories.actor(organization))
    answer = admin_api.post("/tools/import", {"source": "items", "items": [item]})
    assert [one["result"] for one in answer.json()["items"]] == ["created"]
    again = admin_api.get("/tools/plain").json()
    assert {name: again[name] for name in tool.version.definition} == tool.version.definition


def test_a_name_that_no_endpoint_takes_is_formatted_another_way(api, organization):
    factories.tool(organization, "web.look_up")
    (reported,) = api.get("/tools?format=openai").json()["results"]
    function = reported["function"]
    assert function["name"].startswith("web_look_up_")
    assert function["parameters"]["title"] == "web.look_up"


KINDS = {
    "api/v1/tools": "tool", "api/v1/chains": "chain", "api/v1/groups": "group", "chains": "chain",
    "agents": "agent", "channels": "channel", "schemas": "schema", "servers": "server",
    "services": "service",
}  # fmt: skip


def reserved_segments() -> list[tuple[str, str]]:
    """The reserved path segments, by the kind of row that is named there."""
    split = [one.strip("/").split("/") for one in addresses("") if not one.startswith("admin/")]
    fixed, named = defaultdict(set), set()
    for parts in split:
        for at, part in enumerate(parts):
            fixed[tuple(parts[:at])].add(part)
            if part.startswith(("<str:", "<path:", "<slug:")):
                named.add(tuple(parts[:at]))
    return sorted(
        (KINDS["/".join(above)], part)
        for above in named
        for part in fixed[above]
        if not part.startswith("<")
    )


MADE_BY = {
    "tool": ("/tools", factories.definition),
    "chain": ("/chains", lambda name: {"name": name, "description": "Two steps.", "steps": [
        {"id": "first", "tool_name": "read_file", "parameters": {"path": "a.txt"}},
    ]}),
    "group": ("/groups", lambda name: {"name": name}),
    "agent": ("/agents", lambda name: {"slug": name}),
    "channel": ("/channels", lambda name: {"name": name, "kind": "inbox"}),
    "schema": ("/content-schemas", lambda name: {"name": name, "kind": "json", "document": {}}),
    "server": ("/mcp-servers", lambda name: {
        "name": name, "transport": "sse", "url": "https://x.example/",
    }),
    "service": ("/tool-services", lambda name: {"id": name, "name": "Service"}),
}  # fmt: skip


def test_an_address_has_been_found_for_each_kind():
    assert {kind for kind, _ in reserved_segments()} == set(MADE_BY)


@pytest.mark.parametrize(("kind", "name"), reserved_segments())
def test_nothing_is_named_like_an_address(admin_api, kind, name):
    path, body = MADE_BY[kind]
    refusal = check_error(admin_api.post(path, body(name)), 400)
    assert "is reserved" in str(refusal)
    answer = admin_api.post(path, body(f"{name}-7391"))
    assert answer.status_code in (201, 400) and "is reserved" not in answer.content.decode()
