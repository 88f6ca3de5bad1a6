import re

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.ui.pages import htmx, notes, text
from tools.models import Organization, Tool
from tools.ui.catalog.catalog_search import LABELS

FILES = ["read_file", "write_file"]
ALL = sorted([*factories.BUILTIN_NAMES, "alpha", "beta"])
CATEGORIES = factories.BUILTIN_CATEGORIES | {"alpha": "Network", "beta": "System"}


def names(response) -> list[str]:
    return re.findall(r'<a class="name"[^>]*>([^<]+)</a>', text(response))


@pytest.fixture
def tools(organization: Organization) -> None:
    factories.tool(organization, "alpha", description="Counts sheep.", category="Network")
    factories.tool(organization, "beta", description="Counts goats.", group=["barn"])


def test_it_shows_every_tool_with_its_status(admin_client: Client, tools: None) -> None:
    page = admin_client.get("/")
    assert names(page) == ALL
    assert f"<b>{len(ALL)}</b> active" in text(page)


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=counts", ["alpha", "beta"]),
        ("q=goats", ["beta"]),
        ("category=Network", ["alpha", "web_fetch"]),
        ("group=barn", ["beta"]),
        ("type=code&sort=-name", ["beta", "alpha"]),
        ("status=disabled", []),
        ("sort=category", sorted(ALL, key=lambda name: (CATEGORIES[name], name))),
        ("sort=nonsense", ALL),
        ("page=999", ALL),
        ("tier=WriterPro", ["alpha", "beta"]),
        ("tier=Enterprise", []),
        ("origin=product&q=sheep", ["alpha"]),
        ("origin=nobody", []),
    ],
)
def test_the_address_holds_the_search(
    admin_client: Client, tools: None, query: str, found: list[str]
) -> None:
    assert names(admin_client.get(f"/?{query}")) == found


def test_what_fits_best_stands_first_unless_a_column_is_chosen(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "abacus", description="Counts sheep and goats.")
    factories.tool(organization, "shepherd", title="Counter of sheep", description="Of sheep.")
    assert names(admin_client.get("/?q=sheep+counter")) == ["shepherd", "abacus"]
    assert names(admin_client.get("/?q=sheep+counter&sort=name")) == ["abacus", "shepherd"]
    assert 'aria-sort="ascending"' not in text(admin_client.get("/?q=sheep"))


def test_what_is_written_wrong_is_found(admin_client: Client, organization: Organization) -> None:
    factories.tool(organization, "csv_summary")
    assert names(admin_client.get("/?q=cvs_sumary"))[0] == "csv_summary"


def facet(page: str, name: str) -> dict[str, int]:
    """Its values and counts."""
    found = page.partition(f"<h2>{LABELS[name]}</h2>")[2].partition("</div>")[0]
    pairs = re.findall(r"<span>([^<]+)</span> <b>([\d,]+)</b>", found)
    return {value: int(count.replace(",", "")) for value, count in pairs}


def test_facets_count_what_each_value_would_leave(admin_client: Client, tools: None) -> None:
    page = text(admin_client.get("/"))
    assert facet(page, "type") == {"builtin": len(factories.BUILTIN_NAMES), "code": 2}
    assert facet(page, "status") == {"active": len(ALL)}
    assert facet(page, "group")["barn"] == 1
    assert facet(page, "tier")["WriterPro"] == 2
    narrowed = text(admin_client.get("/?type=code"))
    assert facet(narrowed, "group") == {"barn": 1, "default": 1}
    assert facet(narrowed, "type") == {"builtin": len(factories.BUILTIN_NAMES)}
    assert facet(narrowed, "origin") == {"product": 2}


def test_facets_combine_in_the_address_and_chips_take_one_away(
    admin_client: Client, tools: None
) -> None:
    page = text(admin_client.get("/?type=code"))
    assert 'href="/?type=code&amp;group=barn"' in page
    page = text(admin_client.get("/?group=barn&type=code"))
    assert names(admin_client.get("/?group=barn&type=code")) == ["beta"]
    chips = re.findall(r'class="tag chosen" href="([^"]+)"', page)
    assert chips == ["/?type=code", "/?group=barn"]
    assert notes(page)["chosen-filter"] == ["barn", "code"]


def test_words_keep_the_facets_that_are_set(admin_client: Client, tools: None) -> None:
    part = text(admin_client.get("/?origin=product&type=code", headers=htmx("results", "filters")))
    assert '<input type="hidden" name="origin" value="product" form="filters">' in part
    assert "view-address" in notes(part)


def test_a_search_asks_two_queries_more(
    admin_client: Client, tools: None, django_assert_max_num_queries
) -> None:
    admin_client.get("/")
    with django_assert_max_num_queries(6 + 2):  # how many have each word, and the tools
        assert names(admin_client.get("/?q=counts")) == ["alpha", "beta"]


def test_each_tool_has_its_price_in_tokens(admin_client: Client, organization, tools: None) -> None:
    api = Api(factories.token(factories.superuser(organization), scopes=["read", "manage"]))
    price = api.get("/tools/alpha").json()["token_estimate"]
    assert price > 10
    assert str(price) in notes(admin_client.get("/?q=alpha"))["token-price"]
    facts = notes(admin_client.get("/tools/alpha/"))["fact"]
    assert any(f"{price:,}" in fact.split() for fact in facts)


def test_htmx_is_given_the_results_and_their_address(admin_client: Client, tools: None) -> None:
    part = admin_client.get("/?q=goats&category=", headers=htmx("results", "filters"))
    assert names(part) == ["beta"]
    assert "<html" not in text(part)
    assert part["HX-Replace-Url"] == "/?q=goats"


def test_a_sorted_column_makes_an_entry_of_the_history(admin_client: Client, tools: None) -> None:
    part = admin_client.get("/?sort=-name", headers=htmx("results", "sort-tool"))
    assert part["HX-Push-Url"] == "/?sort=-name"
    assert 'aria-sort="descending"' in text(part)


def test_pages_keep_the_search(admin_client: Client, organization: Organization) -> None:
    for number in range(26):
        factories.tool(organization, f"plenty_{number:02}")
    page = text(admin_client.get("/?q=plenty"))
    assert re.findall(r"\d+", notes(page)["range"][0]) == ["1", "25", "26"]
    assert "/?q=plenty&amp;page=2" in page
    assert names(admin_client.get("/?q=plenty&page=2")) == ["plenty_25"]


def test_nothing_found_says_what_to_do(admin_client: Client) -> None:
    assert "none-matches" in notes(admin_client.get("/?q=zebra"))


def test_the_switch_works_without_javascript(
    admin_client: Client, organization: Organization
) -> None:
    response = admin_client.post("/tools/read_file/disable", {"next": "/?q=read"})
    assert response["Location"] == "/?q=read"
    assert Tool.objects.get(organization=organization, name="read_file").status == "disabled"
    record = AuditRecord.objects.get(organization=organization.slug, code="REG.TOOL_DISABLE")
    assert (record.subject, record.details["reason"]) == ("read_file", "ui")


def test_the_switch_gives_htmx_the_row_alone(admin_client: Client) -> None:
    part = admin_client.post("/tools/read_file/disable", headers=htmx("tool-x"))
    assert text(part).lstrip().startswith('<tr id="tool-')
    assert 'aria-checked="false"' in text(part)
    assert "/tools/read_file/enable" in text(part)
    assert '"text": "read_file is disabled."' in part["HX-Trigger"]


def test_the_switch_does_not_redirect_to_another_site(admin_client: Client) -> None:
    response = admin_client.post("/tools/read_file/disable", {"next": "//evil.example"})
    assert response["Location"] == "/"


def test_the_switch_does_nothing_on_get(admin_client: Client) -> None:
    assert admin_client.get("/tools/read_file/disable").status_code == 405


def test_who_may_not_change_tools_sees_no_switch_and_is_refused(
    client_of, organization: Organization
) -> None:
    client = client_of("tools.view_tool")
    assert "role=switch" not in text(client.get("/")).replace('"', "")
    refused = client.post("/tools/read_file/disable")
    assert refused.status_code == 403
    assert "change_tool" in text(refused)
    assert Tool.objects.get(organization=organization, name="read_file").status == "active"


def test_a_refusal_within_a_page_is_a_notice(client_of) -> None:
    refused = client_of("tools.view_tool").post("/tools/read_file/disable", headers=htmx("x"))
    assert refused.status_code == 403
    assert refused["HX-Retarget"] == "#notice"
    assert "<html" not in text(refused)


def test_without_permission_only_tools_one_could_call_are_there(client_of, tools: None) -> None:
    assert names(client_of().get("/")) == []
    assert client_of().get("/tools/alpha/").status_code == 404


def test_who_may_execute_tools_sees_those_of_their_groups(client_of, tools: None) -> None:
    client = client_of("tools.execute_tool")
    assert names(client.get("/")) == ["alpha"]
    assert client.get("/tools/alpha/").status_code == 200
    assert client.get("/tools/beta/").status_code == 404


def test_the_catalog_asks_no_query_per_tool(
    admin_client: Client, tools: None, django_assert_max_num_queries
) -> None:
    admin_client.get("/")
    with django_assert_max_num_queries(6):  # who it is, what the menu counts, and the tiers
        admin_client.get("/")
