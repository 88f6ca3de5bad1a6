"""What was imported is live in every process with the very next request, over real HTTP."""

import json
import threading
from typing import Any

from tests import factories
from tests.journeys.client import Http
from tools.catalog.imports.catalog_import import import_items
from tools.definitions.dialects import import_documents, import_entries

TIMES = 12  # more than one thread and process answers


def plain(name: str, description: str = "d") -> dict[str, Any]:
    return {"name": name, "type": "text-completion", "description": description}


def seen_at_once(http: Http) -> list[dict[str, str]]:
    """The catalog as each of many simultaneous requests sees it."""
    found: list[dict[str, str]] = []

    def look() -> None:
        rows = http("GET", "/api/v1/tools").json()["results"]
        found.append({row["name"]: row["description"] for row in rows})

    threads = [threading.Thread(target=look) for _ in range(TIMES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_an_import_is_seen_by_every_process_at_once(
    crib: Any, committed: None, admin: Http, organization: Any
) -> None:
    agent = factories.agent(organization, groups=["*"])
    http = Http(crib.url, factories.token(agent.service_account))
    assert all("brought" not in seen for seen in seen_at_once(http))
    for words in ("first", "second", "third"):
        answer = admin("POST", "/api/v1/tools/import", {"document": [plain("brought", words)]})
        assert answer.json()["items"][0]["errors"] == []
        assert [seen.get("brought") for seen in seen_at_once(http)] == [words] * TIMES


def test_an_import_of_another_process_is_seen_too(
    crib: Any, committed: None, organization: Any
) -> None:
    """As by `manage.py import_tools`: this process is none of the crib's."""
    agent = factories.agent(organization, groups=["*"])
    http = Http(crib.url, factories.token(agent.service_account))
    seen_at_once(http)
    (document,) = import_documents.parse_documents(json.dumps(plain("from-elsewhere")))
    found = import_entries.split_document(document, import_entries.detect_source(document))
    import_items(organization=organization, items=found, by=factories.actor(organization))
    assert all("from-elsewhere" in seen for seen in seen_at_once(http))
