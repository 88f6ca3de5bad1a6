"""OpenAPI documents are converted to definitions of http tools."""

import random
import re
from copy import deepcopy

import pytest

from tests.properties import examples
from tests.tools.definitions.openapi.openapi_documents import (
    LIBRARY,
    PETSTORE,
    document_of_one,
    petstore,
)
from tools.definitions.implementations.http_requests import build_request
from tools.definitions.implementations.http_tools import UnusableArgument
from tools.definitions.openapi import BadOpenApiDocument, draft_operations
from tools.definitions.schemas import json_schemas
from tools.definitions.tool import ToolDefinition, read_definition


def by_key(document, **options):
    return {draft.key: draft for draft in draft_operations(document, **options)}


@pytest.fixture(scope="module")
def pets():
    return by_key(PETSTORE)


@pytest.fixture(scope="module")
def books():
    return by_key(LIBRARY)


def flaw(document, **options):
    (draft,) = draft_operations(document, **options)
    assert draft.flaws, draft
    return " ".join(f"{flaw['field']} {flaw['message']}" for flaw in draft.flaws)


GOOD = {
    *("GET /pets", "POST /pets", "GET /pets/{pet-id}", "PUT /pets/{pet-id}"),
    *("DELETE /pets/{pet-id}", "POST /pets/{pet-id}/status", "GET /search"),
}


def test_every_operation_that_can_be_is_a_definition(pets, books):
    assert {key for key, draft in pets.items() if not draft.flaws} == GOOD
    assert not any(draft.flaws for draft in books.values()), books
    for draft in [*pets.values(), *books.values()]:
        assert draft.flaws or read_definition(draft.definition)


def test_what_cannot_be_says_why(pets):
    words = {key: draft.flaws[0]["message"] for key, draft in pets.items() if draft.flaws}
    assert set(words) == {"POST /pets/{pet-id}/photo", "GET /secret"}
    assert "multipart/form-data" in words["POST /pets/{pet-id}/photo"]
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
    assert schema["required"] == ["name"]  # the caller does not choose the id
    assert schema["properties"]["price"] == {"type": "number", "exclusiveMinimum": 0}
    assert schema["properties"]["name"] == {"type": "string", "minLength": 1}
    assert schema["properties"]["parent"] == {
        "anyOf": [{"allOf": [{"$ref": "#/$defs/Pet"}]}, {"type": "null"}]
    }
    validator = json_schemas.compile_schema(schema)
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
    validator = json_schemas.compile_schema(book)
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
    (draft,) = draft_operations(
        PETSTORE, pick=["addPet"], server="http://127.0.0.1:8/x/", credentials={"api_key": "mine"}
    )
    assert draft.definition["implementation"]["url"] == "http://127.0.0.1:8/x/pets"
    assert draft.definition["implementation"]["credential"] == "mine"
    assert draft.header == "X-Api-Key"


def document_of(*operations):
    """A document of operations, each given as an id and `GET /path`."""
    paths = {}
    for id_, key in operations:
        method, _, path = key.partition(" ")
        found = {"operationId": id_} if id_ is not None else {}
        for name in re.findall(r"{(.*?)}", path):
            parameter = {"name": name, "in": "path", "required": True, "schema": SCHEMA}
            found.setdefault("parameters", []).append(parameter)
        paths.setdefault(path, {})[method.lower()] = found | {"responses": {}}
    return _document(paths)


def names(*operations, **options):
    return {one.key: one.name for one in draft_operations(document_of(*operations), **options)}


LONG = "list_every_subscription_invoice_line_of_one_customer_account_of_x_"
SAME = (f"{LONG}read", "GET /z/{id}"), (f"{LONG}remove", "DELETE /z/{id}")


def test_names_that_are_cut_stay_two_names():
    found = names(*SAME)
    assert len({*found.values()}) == 2 and max(map(len, found.values())) <= 64
    assert not any(one.flaws for one in draft_operations(document_of(*SAME)))


def test_what_is_picked_changes_no_name():
    alike = ("getUser", "GET /a"), ("get_user", "GET /b"), ("GETUSER", "GET /c")
    for operations in (SAME, alike):
        whole = names(*operations)
        for _, key in operations:
            assert names(*operations, pick=[key]) == {key: whole[key]}


def test_other_scripts_are_transliterated():
    found = names(
        ("获取信息", "GET /info"), ("列出用户", "GET /users"), ("поиск", "GET /s"),
        ("Größe ändern", "PUT /g"), ("…", "GET /dots/{id}"), (None, "GET /страны"),
    )  # fmt: skip
    assert found == {
        "GET /info": "HuoQuXinXi", "GET /users": "LieChuYongHu", "GET /s": "poisk",
        "PUT /g": "Grosse_andern", "GET /dots/{id}": "get_dots_id", "GET /страны": "get_strany",
    }  # fmt: skip


def test_two_operations_with_one_name_get_different_names():
    document = petstore()
    document["paths"]["/pets"]["post"]["operationId"] = "LISTPETS"
    found = by_key(document)
    both = found["GET /pets"].name, found["POST /pets"].name
    assert [name[:9] for name in both] == ["listPets_", "LISTPETS_"]
    assert not found["POST /pets"].flaws and both[0][9:] != both[1][9:]


def test_a_parameter_of_another_script_has_a_name_that_says_something():
    place = [{"name": "город", "in": "query", "schema": SCHEMA}, {"name": "地", "in": "query",
             "schema": SCHEMA}]  # fmt: skip
    (draft,) = draft_operations(document_of_one(parameters=place))
    assert draft.definition["implementation"]["query"] == {"город": "{gorod}", "地": "{De}"}


def sent(document, arguments, **options):
    """The request of the document's operation; its schema must accept the arguments."""
    (draft,) = draft_operations(document, **options)
    assert not draft.flaws, draft.flaws
    definition = read_definition(draft.definition)
    flaws = json_schemas.compile_schema(definition["input_schema"]).flaws(arguments)
    assert flaws == [], flaws
    return build_request(definition["implementation"], arguments)


def query(arguments, **parameter):
    document = document_of_one(parameters=[{"in": "query", **parameter}])
    return sent(document, arguments).url.partition("?")[2]


FOUND = {
    "type": "object", "required": ["q"],
    "properties": {"q": {"type": "string"}, "query_by": {"type": "string"}, "n": {"type": "array"}},
}  # fmt: skip
BY = {"q": "a", "query_by": "title"}


@pytest.mark.parametrize(
    ("said", "query_"),
    [
        ({}, "q=a&query_by=title"),
        ({"style": "form", "explode": True}, "q=a&query_by=title"),
        ({"explode": False}, "p=q,a,query_by,title"),
        ({"style": "pipeDelimited", "explode": False}, "p=q%7Ca%7Cquery_by%7Ctitle"),
        ({"style": "deepObject", "explode": True}, "p%5Bq%5D=a&p%5Bquery_by%5D=title"),
    ],
)
def test_an_object_in_a_query_is_sent_as_its_style_says(said, query_):
    assert query({"p": BY}, name="p", schema=FOUND, **said) == query_


def test_an_object_that_is_referred_to_is_an_object():
    components = {"schemas": {"P": FOUND}, "parameters": {"P": {
        "in": "query", "name": "p", "schema": {"$ref": "#/components/schemas/P"}}}}  # fmt: skip
    document = document_of_one(
        parameters=[{"$ref": "#/components/parameters/P"}], components=components
    )
    assert sent(document, {"p": BY | {"n": [1, 2]}}).url.endswith("?q=a&query_by=title&n=1&n=2")


def test_members_that_become_entries_are_those_of_the_document():
    (draft,) = draft_operations(
        document_of_one(parameters=[{"in": "query", "name": "p", "schema": FOUND}])
    )
    validator = json_schemas.compile_schema(draft.definition["input_schema"])
    assert validator.flaws({"p": BY}) == [] and validator.flaws({"p": BY | {"admin": "yes"}})


def test_a_member_takes_no_other_entry_of_the_query():
    parameters = [
        {"in": "query", "name": "key", "schema": SCHEMA},
        {"in": "query", "name": "p", "schema": {"type": "object", "additionalProperties": True}},
    ]
    with pytest.raises(UnusableArgument, match="another entry"):
        sent(document_of_one(parameters=parameters), {"p": {"key": "x"}})
    assert sent(document_of_one(parameters=parameters), {"p": {"a": "1"}, "key": "k"}).url.endswith(
        "?key=k&a=1"
    )


@pytest.mark.parametrize(
    ("value", "query_"),
    [
        ({"a": {"b": {"c": 1}}}, "f%5Ba%5D%5Bb%5D%5Bc%5D=1"),
        ({"a": ["x", "y"], "b": None}, "f%5Ba%5D=x&f%5Ba%5D=y"),
        ({"a": [{"b": True}, {}]}, "f%5Ba%5D%5B0%5D%5Bb%5D=true"),
        ({"a&b=c": "d]"}, "f%5Ba%26b%3Dc%5D=d%5D"),
        ({}, ""),
    ],
)  # fmt: skip
def test_members_within_members_stand_in_brackets(value, query_):
    assert query({"f": value}, name="f", style="deepObject", schema={"type": "object"}) == query_


def test_a_member_that_is_an_object_is_no_value_of_its_own_entry():
    with pytest.raises(UnusableArgument, match="an object"):
        query({"p": {"a": {"b": 1}}}, name="p", schema={"type": "object"})


def test_a_parameter_with_a_content_is_sent_as_that():
    content = {"application/json; charset=utf-8": {"schema": {"type": "object"}}}
    value = {"p": {"a": [1, "ü"]}}
    assert query(value, name="p", content=content) == "p=%7B%22a%22%3A%5B1%2C%22%C3%BC%22%5D%7D"
    plain = {"text/plain": {"schema": SCHEMA}}
    assert query({"p": "a b"}, name="p", content=plain) == "p=a%20b"
    header = document_of_one(parameters=[{"in": "header", "name": "X-P", "content": content}])
    assert sent(header, {"X-P": '{"a": 1}'}).headers["X-P"] == '{"a": 1}'


def body(kind, schema, arguments, **media):
    content = {kind: {"schema": schema, **media}}
    asked = sent(
        document_of_one(method="post", requestBody={"required": True, "content": content}),
        arguments,
    )
    return asked.headers["Content-Type"], asked.body.decode()


def test_objects_in_a_form_are_sent_as_its_encoding_says():
    form = "application/x-www-form-urlencoded"
    schema = {"type": "object", "properties": {
        "metadata": {"type": "object"}, "card": {"type": "object"}, "flat": {"type": "object"},
        "items": {"type": "array", "items": {"type": "object"}}, "n": {"type": "integer"},
    }}  # fmt: skip
    encoding = {
        "card": {"style": "deepObject", "explode": True}, "flat": {"style": "form"},
        "items": {"style": "deepObject", "explode": True},
    }  # fmt: skip
    arguments = {
        "metadata": {"a": 1}, "card": {"number": "4"}, "flat": {"x": "y"}, "items": [{"id": "i"}],
        "n": 2,
    }  # fmt: skip
    assert body(form, schema, arguments, encoding=encoding) == (
        form,
        "metadata=%7B%22a%22%3A1%7D&card%5Bnumber%5D=4&x=y&items%5B0%5D%5Bid%5D=i&n=2",
    )


@pytest.mark.parametrize("kind", ["text/plain", "text/csv", "application/x-ndjson"])
def test_a_body_of_text_is_sent_as_it_is(kind):
    sent_as, text = body(kind, SCHEMA, {"body": '"a"\n{b}'})
    assert (sent_as.partition(";")[0], text) == (kind, '"a"\n{b}')


SERVER = {
    "url": "https://{region}.{host}/{version}",
    "variables": {
        "region": {"default": "eu", "enum": ["eu", "us"]}, "host": {"default": "api.example.com"},
        "version": {"description": "which"},
    },
}  # fmt: skip


def test_variables_of_a_server_are_given_or_their_defaults():
    document = document_of_one(servers=[SERVER])
    assert "'version'" in flaw(document)
    assert sent(document, {}, variables={"version": "v1"}).url == "https://eu.api.example.com/v1/x"
    given = {"version": "v2", "region": "us", "host": "h.example"}
    assert sent(document, {}, variables=given).url == "https://us.h.example/v2/x"
    document["paths"]["/x"]["get"]["servers"] = [{"url": "https://own.example.com"}]
    assert sent(document, {}).url == "https://own.example.com/x"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"region": "moon"}, "must be one of eu, us"),
        ({"regoin": "eu"}, "known: region, host, version"),
        ({"version": "v1", "host": "h.example/{id}"}, "placeholder"),
    ],
)
def test_values_that_no_server_has_are_refused(variables, words):
    document = document_of_one(servers=[SERVER])
    try:
        said = flaw(document, variables=variables)
    except BadOpenApiDocument as error:
        said = str(error)
    assert words in said


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
        ({"parameters": [{"name": "q", "in": "query", "content": {}}]}, "nor a content"),
        (
            {"parameters": [{"name": "q", "in": "header", "schema": {"type": "object"}}]},
            "an object",
        ),
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
        ({"requestBody": {"content": {"image/png": {}}}}, "image/png"),
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
    assert words in flaw(document_of_one(**fields))


def test_a_credential_that_may_be_absent_is_absent():
    (draft,) = draft_operations(document_of_one(security=[{}, {"a": []}]))
    assert "credential" not in draft.definition["implementation"] and not draft.flaws


def test_a_schema_of_an_answer_that_cannot_be_is_left_out_and_noted():
    answer = {"content": {"application/json": {"schema": {"pattern": "(?=x)"}}}}
    (draft,) = draft_operations(document_of_one(responses={"200": answer}))
    assert not draft.flaws and draft.definition["output_schema"] == {}
    assert "left out" in draft.notes[0]


def test_a_password_is_kept_out_of_evidence():
    parameters = [
        {"name": "pin", "in": "query", "schema": {"type": "string", "format": "password"}}
    ]
    (draft,) = draft_operations(document_of_one(parameters=parameters))
    assert ToolDefinition(read_definition(draft.definition)).sensitive == {"pin"}


def test_a_long_chain_of_references_is_no_accident():
    chain = {f"s{n}": {"items": {"$ref": f"#/components/schemas/s{n + 1}"}} for n in range(5000)}
    schema = {"$ref": "#/components/schemas/s0"}
    parameters = [{"name": "q", "in": "query", "schema": schema}]
    components = {"schemas": chain | {"s5000": {}}}
    assert "more than 200 schemas" in flaw(
        document_of_one(parameters=parameters, components=components)
    )


def test_references_do_not_make_schemas_grow():
    """Two references to the next, thirty times: copied, they would be a billion schemas."""
    both = {
        f"s{n}": {"items": {"$ref": f"#/components/schemas/s{n + 1}"}, "prefixItems": [
            {"$ref": f"#/components/schemas/s{n + 1}"}
        ]} for n in range(30)
    }  # fmt: skip
    parameters = [{"name": "q", "in": "query", "schema": {"$ref": "#/components/schemas/s0"}}]
    document = document_of_one(parameters=parameters, components={"schemas": both | {"s30": {}}})
    (draft,) = draft_operations(document)
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
        {"openapi": "3.0.0", "paths": {f"/{n}": {"get": {}} for n in range(1001)}},
        {"openapi": "3.0.0", "paths": {f"/{n}": None for n in range(1001)}},
    ],
)
def test_what_is_no_document_is_refused(document):
    with pytest.raises(BadOpenApiDocument):
        draft_operations(document)


def test_a_document_that_holds_itself_is_refused():
    document = petstore()
    document["components"]["x"] = document
    with pytest.raises(BadOpenApiDocument):
        draft_operations(document)


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
    """Randomly chosen places of the document are replaced, one after the other."""
    draw = random.Random(6)
    for place in draw.sample([*places(document)][1:], max_examples):
        copy = deepcopy(document)
        owner = copy
        for step in place[:-1]:
            owner = owner[step]
        owner[place[-1]] = deepcopy(draw.choice(ODD))
        try:
            draft_operations(copy)
        except BadOpenApiDocument:
            continue


@pytest.mark.part("generated")
def test_the_work_for_a_schema_of_many_operations_is_bounded():
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(9_000)}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/B"}}}}
    operation = {"requestBody": body, "responses": {}}
    item = {"post": operation, "put": operation, "patch": operation}
    paths = {f"/a{number}": {"$ref": "#/components/pathItems/P"} for number in range(50)}
    with pytest.raises(BadOpenApiDocument, match="pick fewer"):
        draft_operations(_document(paths, schemas={"B": schema}, pathItems={"P": item}))


def test_an_operation_with_more_than_a_tool_can_have_is_refused_alone():
    many = [{"in": "query", "name": f"p{n}", "schema": {"type": "string"}} for n in range(201)]
    assert "parameters" in flaw(_document({"/a": {"get": {"parameters": many, "responses": {}}}}))
    schema = {"type": "object", "properties": {f"p!{n}": {"type": "string"} for n in range(201)}}
    body = {"content": {"application/x-www-form-urlencoded": {"schema": schema}}}
    said = flaw(_document({"/a": {"post": {"requestBody": body, "responses": {}}}}))
    assert "more than 200 arguments" in said


def _document(paths, **components):
    info, servers = {"title": "t", "version": "1"}, [{"url": "https://api.example"}]
    said = {"openapi": "3.1.0", "info": info, "servers": servers}
    return said | {"paths": paths, "components": components}


INT64 = 9_223_372_036_854_775_807


def test_a_bound_beyond_2_to_the_53_is_kept_exactly():
    bounds = {"type": "integer", "minimum": -INT64 - 1, "maximum": INT64, "default": INT64}
    answer = {"content": {"application/json": {"schema": {"type": "integer", "enum": [2**64]}}}}
    parameters = [{"name": "id", "in": "query", "schema": bounds}]
    (draft,) = draft_operations(document_of_one(parameters=parameters, responses={"200": answer}))
    assert not draft.flaws and draft.notes == ()
    assert draft.definition["input_schema"]["properties"]["id"] == bounds
    assert draft.definition["output_schema"]["enum"] == [2**64]


@pytest.mark.parametrize(
    "odd",
    [float("inf"), float("nan"), 10**300, "\x00", "a\ud83d"],
    ids=["inf", "nan", "301 digits", "NUL", "half an emoji"],
)
def test_what_no_tool_needs_refuses_no_document(odd):
    schema = {"type": "integer", "example": odd, "x-odd": {"a": [odd]}}
    parameters = [{"name": "n", "in": "query", "schema": schema, "examples": {"a": odd}}]
    document = document_of_one(parameters=parameters)
    document["info"]["x-odd"] = odd
    (draft,) = draft_operations(document)
    assert not draft.flaws and draft.notes == ()
    assert draft.definition["input_schema"]["properties"] == {"n": {"type": "integer"}}


@pytest.mark.parametrize(
    "odd", [float("inf"), float("nan"), -(10**300)], ids=["inf", "nan", "301 digits"]
)
@pytest.mark.parametrize("word", ["maximum", "default", "enum"])
def test_a_word_of_a_schema_that_no_number_can_be_is_left_out_with_a_note(word, odd):
    schema = {"type": "number", word: [1, odd] if word == "enum" else odd}
    parameters = [{"name": "n", "in": "query", "schema": schema}]
    answer = {"content": {"application/json": {"schema": schema}}}
    (draft,) = draft_operations(document_of_one(parameters=parameters, responses={"200": answer}))
    assert not draft.flaws
    assert draft.definition["input_schema"]["properties"]["n"] == {"type": "number"}
    assert draft.definition["output_schema"] == {"type": "number"}
    assert [word in note for note in draft.notes] == [True, True]


def test_half_an_emoji_in_a_description_is_a_replacement_character():
    (draft,) = draft_operations(document_of_one(summary="cut \ud83d"))
    assert not draft.flaws and draft.definition["description"] == "cut \ufffd"


@pytest.mark.parametrize("item", [None, [], "x", {"$ref": "https://evil.example"}], ids=repr)
def test_a_path_that_cannot_be_read_is_refused_alone(item):
    document = document_of_one()
    document["paths"]["/odd"] = item
    good, odd = draft_operations(document)
    assert not good.flaws and odd.key == "/odd" and "cannot be read" in odd.flaws[0]["message"]
    assert [draft.key for draft in draft_operations(document, pick=["/odd"])] == ["/odd"]
    assert [draft.key for draft in draft_operations(document, pick=[good.key])] == [good.key]
