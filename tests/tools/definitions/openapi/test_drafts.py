"""From OpenAPI documents to definitions of http tools."""

import random
from copy import deepcopy

import pytest

from tests.properties import examples
from tests.tools.definitions.openapi.documents import LIBRARY, PETSTORE, one, petstore
from tools.definitions import schemas
from tools.definitions.openapi import BadDocument, drafts
from tools.definitions.tool import ToolDefinition, read_definition


def by_key(document, **options):
    return {draft.key: draft for draft in drafts(document, **options)}


@pytest.fixture(scope="module")
def pets():
    return by_key(PETSTORE)


@pytest.fixture(scope="module")
def books():
    return by_key(LIBRARY)


def flaw(document, **options):
    (draft,) = drafts(document, **options)
    assert draft.flaws, draft
    return " ".join(f"{flaw['field']} {flaw['message']}" for flaw in draft.flaws)


GOOD = {
    *("GET /pets", "POST /pets", "GET /pets/{pet-id}", "PUT /pets/{pet-id}"),
    *("DELETE /pets/{pet-id}", "POST /pets/{pet-id}/status"),
}


def test_every_operation_that_can_be_is_a_definition(pets, books):
    assert {key for key, draft in pets.items() if not draft.flaws} == GOOD
    assert not any(draft.flaws for draft in books.values()), books
    for draft in [*pets.values(), *books.values()]:
        assert draft.flaws or read_definition(draft.definition)


def test_what_cannot_be_says_why(pets):
    words = {key: draft.flaws[0]["message"] for key, draft in pets.items() if draft.flaws}
    assert set(words) == {"POST /pets/{pet-id}/photo", "GET /search", "GET /secret"}
    assert "multipart/form-data" in words["POST /pets/{pet-id}/photo"]
    assert "deepObject" in words["GET /search"]
    assert "secrets never stand in URLs" in words["GET /secret"]


def test_parameters_stand_in_their_places(pets):
    definition = pets["GET /pets"].definition
    assert definition["implementation"] == {
        "method": "GET",
        "url": "https://pets.example.com/v2/pets",
        "query": {
            "limit": "{limit}",
            "tags": "{tags}",
            "status": {"value": "{status}", "separator": ","},
            "filter[name]": "{filter_name}",
        },
        "headers": {"X-Trace": "{X-Trace}"},
        "select": "",
    }
    schema = definition["input_schema"]
    assert schema["properties"]["filter_name"]["description"] == "Part of a name."
    assert schema["properties"]["X-Trace"] == {"type": ["string", "null"]}
    assert (schema["required"], schema["additionalProperties"]) == ([], False)
    assert schema["$defs"]["Status"] == {
        "type": ["string", "null"], "enum": ["available", "sold", None]
    }  # fmt: skip


def test_path_header_and_cookie_are_templates(pets):
    assert pets["DELETE /pets/{pet-id}"].definition["implementation"] == {
        "method": "DELETE",
        "url": "https://pets.example.com/v2/pets/{pet-id}",
        "headers": {"X-Reason": "{X-Reason}"},
        "cookies": {"session": "{session}"},
        "credential": "api_key",
    }


def test_members_of_a_body_are_arguments(pets):
    definition = pets["POST /pets"].definition
    body = {name: f"{{{name}}}" for name in ("name", "status", "price", "secret", "parent", "kind")}
    assert definition["implementation"]["body"] == body
    schema = definition["input_schema"]
    assert schema["required"] == ["name"]  # the id is not the caller's to choose
    assert schema["properties"]["price"] == {"type": "number", "exclusiveMinimum": 0}
    assert schema["properties"]["name"] == {"type": "string", "minLength": 1}
    assert schema["properties"]["parent"] == {
        "anyOf": [{"allOf": [{"$ref": "#/$defs/Pet"}]}, {"type": "null"}]
    }
    validator = schemas.compiled(schema)
    good = {"name": "Rex", "kind": {"bark": "wuff"}, "parent": {"name": "Pa", "parent": None}}
    assert validator.flaws(good) == []
    assert validator.flaws(good | {"kind": {"bark": 1}})
    assert validator.flaws(good | {"parent": {"name": ""}})


def test_a_body_whose_members_clash_is_one_argument(pets):
    definition = pets["PUT /pets/{pet-id}"].definition
    assert definition["implementation"]["body"] == "{body}"
    assert definition["input_schema"]["required"] == ["pet-id", "body"]
    assert definition["input_schema"]["properties"]["body"] == {"$ref": "#/$defs/Pet"}


def test_a_body_that_may_be_absent_or_is_no_object_is_one_argument(books):
    patch = books["PATCH /books/{isbn}"].definition
    assert patch["implementation"]["body"] == "{body}"
    assert patch["implementation"]["headers"] == {"Content-Type": "application/merge-patch+json"}
    assert patch["input_schema"]["required"] == ["isbn"]
    assert books["POST /shelves"].definition["input_schema"]["required"] == ["body"]


def test_a_form_is_a_form(pets):
    definition = pets["POST /pets/{pet-id}/status"].definition
    assert definition["name"] == "set_status"
    assert definition["implementation"]["form"] == {"status": "{status}", "notes": "{notes}"}
    assert definition["input_schema"]["required"] == ["pet-id", "status"]
    assert definition["implementation"]["credential"] == "oauth"


def test_the_schema_of_the_one_good_answer_is_that_of_the_output(pets, books):
    output = pets["GET /pets"].definition["output_schema"]
    assert output["items"] == {"$ref": "#/$defs/Pet"}
    assert output["$defs"]["Pet"]["required"] == ["id", "name"]
    assert "secret" not in output["$defs"]["Pet"]["properties"]
    assert pets["GET /pets/{pet-id}"].definition["output_schema"] == {}
    assert "select" not in pets["GET /pets/{pet-id}"].definition["implementation"]
    book = books["GET /books/{isbn}"].definition["output_schema"]
    assert (book["description"], book["$ref"]) == ("The book.", "#/$defs/Book")
    validator = schemas.compiled(book)
    assert validator.flaws({"title": "x", "related": [{"title": "y", "published": None}]}) == []
    assert validator.flaws({"title": "x", "related": [{"title": 1}]})


def test_servers_and_separators_are_read(books):
    implementation = books["GET /books/{isbn}"].definition["implementation"]
    assert implementation["url"] == "http://books.example.com:8080/api/books/{isbn}"
    assert implementation["query"] == {"ids": {"value": "{ids}", "separator": "|"}}


def test_delivery_follows_from_the_method(pets):
    found = {key: draft.definition["delivery"] for key, draft in pets.items() if draft.definition}
    assert found["GET /pets"] == "pure"
    assert found["PUT /pets/{pet-id}"] == found["DELETE /pets/{pet-id}"] == "idempotent"
    assert found["POST /pets"] == "external"


def test_words_about_an_operation_are_those_of_the_document(pets):
    definition = pets["GET /pets"].definition
    assert definition["title"] == "List pets"
    assert definition["description"] == "All pets,\nthe newest first."
    assert pets["GET /pets/{pet-id}"].definition["description"] == "GET /pets/{pet-id}"
    assert pets["DELETE /pets/{pet-id}"].name == "delete_pets_pet-id"


def test_a_part_is_picked_by_id_or_place():
    found = by_key(PETSTORE, pick=["old", "DELETE /pets/{pet-id}", "nothing"], group=["pets"])
    assert set(found) == {"GET /old", "DELETE /pets/{pet-id}", "nothing"}
    assert found["GET /old"].definition["description"].startswith("Deprecated. ")
    assert found["GET /old"].definition["group"] == ["pets"]
    assert found["nothing"].flaws[0]["field"] == "pick"


def test_what_is_deprecated_is_not_taken_by_itself(pets):
    assert "GET /old" not in pets


def test_another_server_and_other_names_of_credentials_may_be_said():
    (draft,) = drafts(
        PETSTORE, pick=["addPet"], server="http://127.0.0.1:8/x/", credentials={"api_key": "mine"}
    )
    assert draft.definition["implementation"]["url"] == "http://127.0.0.1:8/x/pets"
    assert draft.definition["implementation"]["credential"] == "mine"
    assert draft.header == "X-Api-Key"


def test_two_operations_with_one_name_are_told_apart():
    document = petstore()
    document["paths"]["/pets"]["post"]["operationId"] = "LISTPETS"
    draft = by_key(document)["POST /pets"]
    assert "GET /pets" in draft.flaws[0]["message"] and draft.definition == {}


SCHEMA = {"type": "string"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"servers": []}, "names no server"),
        ({"servers": [{"url": "/v1"}]}, "names no host"),
        ({"servers": [{"url": "https://{a}/"}]}, "has no default"),
        ({"servers": [{"url": "https://u:p@one.example.com/"}]}, "implementation.url"),
        ({"path": "/x/{id}"}, "which is no parameter"),
        ({"parameters": [{"name": "id", "in": "path", "schema": SCHEMA}]}, "nowhere in its path"),
        ({"parameters": [{"name": "q", "in": "body", "schema": SCHEMA}]}, "no place"),
        ({"parameters": [{"name": "q", "in": "query", "content": {}}]}, "no schema"),
        ({"parameters": [{"name": "q", "in": "query", "schema": {"type": "object"}}]}, "an object"),
        ({"parameters": [{"name": "Host", "in": "header", "schema": SCHEMA}]}, "headers.Host"),
        ({"parameters": [{"$ref": "https://evil.example/x.json"}]}, "nothing is fetched"),
        ({"parameters": [{"$ref": "other.yaml#/x"}]}, "nothing is fetched"),
        ({"parameters": [{"$ref": "#/components/nothing"}]}, "leads nowhere"),
        ({"parameters": [{"$ref": ["#/x"]}]}, "nothing is fetched"),
        (
            {
                "parameters": [{"$ref": "#/components/parameters/a"}],
                "components": {"parameters": {"a": {"$ref": "#/components/parameters/a"}}},
            },
            "in a circle",
        ),
        (
            {"parameters": [{"name": "q", "in": "query", "schema": {"$dynamicRef": "#x"}}]},
            "dynamicRef",
        ),
        ({"requestBody": {"content": {"text/csv": {}}}}, "text/csv"),
        ({"requestBody": {"content": {"application/json": {}}}}, "is not sent with GET"),
        ({"security": [{"a": []}]}, "name one, does not"),
        ({"security": [{"a": [], "b": []}]}, "several credentials"),
        (
            {
                "security": [{"a": []}],
                "components": {"securitySchemes": {"a": {"type": "mutualTLS"}}},
            },
            "mutualTLS",
        ),
        ({"description": "a\u202eb"}, "invisible"),
    ],
)
def test_what_cannot_be_made_is_said(fields, words):
    assert words in flaw(one(**fields))


def test_a_credential_that_may_be_absent_is_absent():
    (draft,) = drafts(one(security=[{}, {"a": []}]))
    assert "credential" not in draft.definition["implementation"] and not draft.flaws


def test_a_schema_of_an_answer_that_cannot_be_is_left_out_and_noted():
    answer = {"content": {"application/json": {"schema": {"pattern": "(?=x)"}}}}
    (draft,) = drafts(one(responses={"200": answer}))
    assert not draft.flaws and draft.definition["output_schema"] == {}
    assert "left out" in draft.notes[0]


def test_a_password_is_kept_out_of_evidence():
    parameters = [
        {"name": "pin", "in": "query", "schema": {"type": "string", "format": "password"}}
    ]
    (draft,) = drafts(one(parameters=parameters))
    assert ToolDefinition(read_definition(draft.definition)).sensitive == {"pin"}


def test_a_long_chain_of_references_is_no_accident():
    chain = {f"s{n}": {"items": {"$ref": f"#/components/schemas/s{n + 1}"}} for n in range(5000)}
    schema = {"$ref": "#/components/schemas/s0"}
    parameters = [{"name": "q", "in": "query", "schema": schema}]
    components = {"schemas": chain | {"s5000": {}}}
    assert "more than 200 schemas" in flaw(one(parameters=parameters, components=components))


def test_references_do_not_make_schemas_grow():
    """Two references to the next, thirty times: a billion where they are copied."""
    both = {
        f"s{n}": {"items": {"$ref": f"#/components/schemas/s{n + 1}"}, "prefixItems": [
            {"$ref": f"#/components/schemas/s{n + 1}"}
        ]} for n in range(30)
    }  # fmt: skip
    parameters = [{"name": "q", "in": "query", "schema": {"$ref": "#/components/schemas/s0"}}]
    document = one(parameters=parameters, components={"schemas": both | {"s30": {}}})
    (draft,) = drafts(document)
    assert draft.flaws or len(str(draft.definition)) < 10_000


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "openapi",
        {},
        {"openapi": "3.0.0"},
        {"openapi": "3.0.0", "paths": []},
        {"swagger": "2.0", "paths": {}},
        {"openapi": "4.0.0", "paths": {}},
        {"openapi": "3.0.0", "paths": {"/x": {"$ref": "https://evil.example"}}},
        {"openapi": "3.0.0", "paths": {f"/{n}": {"get": {}} for n in range(1001)}},
        {"openapi": "3.0.0", "paths": {}, "x": float("nan")},
    ],
)
def test_what_is_no_document_is_refused(document):
    with pytest.raises(BadDocument):
        drafts(document)


def test_a_document_that_holds_itself_is_refused():
    document = petstore()
    document["components"]["x"] = document
    with pytest.raises(BadDocument):
        drafts(document)


ODD = [None, True, 7, -1.5, "", "x", "#/components/schemas/Pet", [], [[]], [{}], {}, {"$ref": []}]


def places(part, place=()):
    yield place
    steps = enumerate(part) if isinstance(part, list) else ()
    for step, inner in part.items() if isinstance(part, dict) else steps:
        yield from places(inner, (*place, step))


@pytest.mark.part("generated", but_each=2)
@examples(25, 100)
@pytest.mark.parametrize("document", [PETSTORE, LIBRARY], ids=["3.0", "3.1"])
def test_no_odd_document_is_an_accident(document, max_examples):
    """So many places of it are, one after the other, something else."""
    draw = random.Random(6)
    for place in draw.sample([*places(document)][1:], max_examples):
        copy = deepcopy(document)
        owner = copy
        for step in place[:-1]:
            owner = owner[step]
        owner[place[-1]] = deepcopy(draw.choice(ODD))
        try:
            drafts(copy)
        except BadDocument:
            continue


@pytest.mark.part("generated")
def test_a_schema_that_many_operations_are_told_is_not_read_without_end():
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(9_000)}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/B"}}}}
    operation = {"requestBody": body, "responses": {}}
    item = {"post": operation, "put": operation, "patch": operation}
    paths = {f"/a{number}": {"$ref": "#/components/pathItems/P"} for number in range(50)}
    with pytest.raises(BadDocument, match="pick fewer"):
        drafts(_of(paths, schemas={"B": schema}, pathItems={"P": item}))


def test_an_operation_with_more_than_a_tool_can_have_is_refused_alone():
    many = [{"in": "query", "name": f"p{n}", "schema": {"type": "string"}} for n in range(201)]
    assert "parameters" in flaw(_of({"/a": {"get": {"parameters": many, "responses": {}}}}))
    schema = {"type": "object", "properties": {f"p!{n}": {"type": "string"} for n in range(201)}}
    body = {"content": {"application/x-www-form-urlencoded": {"schema": schema}}}
    said = flaw(_of({"/a": {"post": {"requestBody": body, "responses": {}}}}))
    assert "more than 200 arguments" in said


def _of(paths, **components):
    info, servers = {"title": "t", "version": "1"}, [{"url": "https://api.example"}]
    said = {"openapi": "3.1.0", "info": info, "servers": servers}
    return said | {"paths": paths, "components": components}
