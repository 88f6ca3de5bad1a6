"""OpenAPI documents, imported and called through the whole road, to a server that speaks them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests import factories
from tests.journeys.client import Http
from tests.stubs.web import Reply, Web
from tests.tools.definitions.openapi.openapi_documents import LIBRARY, PETSTORE
from tests.tools.shapes import check_execution
from tools.catalog.imports.openapi_import import import_openapi
from tools.catalog.sandbox.credentials import create_credential

JSON = [("Content-Type", "application/json")]
REX = {"id": 7, "name": "Rex", "parent": None, "status": None, "kind": {"bark": "wuff"}}

type Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call(crib: Any, committed: None, organization: Any, admin: Http, web: Web) -> Call:
    by = factories.actor(organization)
    for name, header in (("api_key", "X-Api-Key"), ("token", "Authorization")):
        credential = {"name": name, "header": header, "value": f"s3cret-of-{name}"}
        create_credential(organization=organization, credential=credential, by=by)
    status = {"paths": ["/shop/pets/7/status"], "credential": "token"}
    hosts = [
        {"host": "127.0.0.1", "ports": [web.port], **status},
        {"host": "127.0.0.1", "ports": [web.port], "paths": ["/shop"], "credential": "api_key"},
        {"host": "127.0.0.1", "ports": [web.port], "paths": ["/api"], "credential": "token"},
    ]
    place = f"/api/v1/organizations/{organization.slug}"
    assert admin("PATCH", place, {"allowed_hosts": hosts}).status_code == 200
    for document, path in ((PETSTORE, "/shop"), (LIBRARY, "/api")):
        import_openapi(
            organization=organization, document=document, server=web.url(path), by=by,
            credentials={"oauth": "token"},
        )  # fmt: skip
    made = factories.agent(organization, groups=["default"])
    http = Http(crib.url, factories.token(made.service_account))
    return lambda tool, **arguments: http.execute(tool, arguments).json()


@pytest.mark.part("walks")
def test_a_list_is_asked_for_and_its_schema_holds(call, web):
    web.replies["/shop/pets"] = Reply(headers=JSON, body=json.dumps([REX]).encode())
    done = call("listPets", tags=["a", "b c"], status=["sold", "available"], filter_name="R")
    assert check_execution(done, "Success")["output"] == [REX]
    (seen,) = web.seen
    path, _, query = seen.target.partition("?")
    assert path == "/shop/pets"
    wanted = ["limit=20", "tags=a", "tags=b%20c", "status=sold,available", "filter%5Bname%5D=R"]
    assert sorted(query.split("&")) == sorted(wanted)
    web.replies["/shop/pets"] = Reply(headers=JSON, body=b'[{"id": "seven"}]')
    assert check_execution(call("listPets"), "Failed")["error_code"] == "OUTPUT_INVALID"


def test_a_pet_is_added_with_the_credential_of_its_host(call, web):
    web.replies["/shop/pets"] = Reply(201, JSON, json.dumps(REX).encode())
    done = call("addPet", name="Rex", kind={"bark": "wuff"}, status=None)
    assert check_execution(done, "Success")["output"] == REX
    (seen,) = web.seen
    assert json.loads(seen.body) == {"name": "Rex", "kind": {"bark": "wuff"}, "status": None}
    assert seen.headers["x-api-key"] == "s3cret-of-api_key"


@pytest.mark.part("walks")
def test_what_the_document_does_not_allow_is_not_sent(call, web):
    assert call("addPet", name="")["code"] == "invalid_parameters"
    assert call("addPet", name="Rex", kind={"meow": 1})["code"] == "invalid_parameters"
    assert call("listPets", limit=101)["code"] == "invalid_parameters"
    assert web.seen == []


@pytest.mark.part("walks")
def test_other_places_of_a_request(call, web):
    web.replies["/shop/pets/7"] = lambda seen: Reply(204)
    web.replies["/shop/pets/7/status"] = Reply(headers=[("Content-Type", "text/plain")], body=b"ok")
    gone = call("delete_pets_pet-id", **{"pet-id": 7, "X-Reason": "sold", "session": "a;b"})
    assert check_execution(gone, "Success")["output"] == {"status": 204, "body": None}
    set_status = call("set_status", **{"pet-id": 7}, status="sold", notes=["x", "y"])
    assert check_execution(set_status, "Success")["output"]["body"] == "ok"
    replaced = call("replacePet", **{"pet-id": 7}, name="x", body={"name": "Max"})
    assert check_execution(replaced, "Success")
    first, second, third = web.seen
    assert (first.method, first.headers["cookie"]) == ("DELETE", "session=a%3Bb")
    assert first.headers["x-reason"] == "sold"
    assert sorted(second.body.split(b"&")) == [b"notes=x", b"notes=y", b"status=sold"]
    assert second.headers["authorization"] == "s3cret-of-token"
    assert (third.target, json.loads(third.body)) == ("/shop/pets/7?name=x", {"name": "Max"})


@pytest.mark.part("walks")
def test_a_document_of_the_newer_version(call, web):
    book = {"title": "x", "published": None, "related": [{"title": "y"}], "pair": ["a", 1]}
    web.replies["/api/books/1-2"] = lambda seen: (
        Reply(204)
        if seen.method == "PATCH"
        else Reply(headers=JSON, body=json.dumps(book).encode())
    )
    read = check_execution(call("readBook", isbn="1-2", ids=[1, 2]), "Success")
    assert read["output"] == book
    check_execution(call("changeBook", isbn="1-2", body={"title": None}), "Success")
    assert web.seen[0].target == "/api/books/1-2?ids=1%7C2"
    changed = web.seen[1]
    assert changed.headers["content-type"] == "application/merge-patch+json"
    assert changed.headers["authorization"] == "s3cret-of-token"
    assert call("readBook", isbn="../x")["code"] == "invalid_parameters"
