"""The tools that come with the product: their definitions, and how the isolated ones are run."""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from sandbox.spec import IsolationLevel, Mount, Profile
from tools.builtin.workspaces import workspace_of
from tools.definitions.implementations.tool_types import ASK_MODEL, RUN_PROGRAM

INSIDE = "/workspace"
# What importing trafilatura imports; what is not mounted is not there.
_EXTRACTOR = (
    *("trafilatura", "lxml", "lxml_html_clean", "justext", "htmldate", "courlan", "tld"),
    *("charset_normalizer", "dateutil", "six", "babel", "urllib3", "certifi"),
)


@lru_cache(maxsize=32)
def _source(module: str) -> str:
    return resources.files("tools.builtin.isolated").joinpath(f"{module}.py").read_text("utf-8")


@lru_cache(maxsize=32)
def _library(name: str) -> str:
    """The directory of an installed package, or the file of a single module, to be bound read-only
    into the sandbox."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise LookupError(f"the package {name} is not installed")
    origin = Path(found.origin)
    return str(origin.parent if found.submodule_search_locations else origin)


@lru_cache(maxsize=8)
def _record(distribution: str) -> str:
    """The directory where an installer wrote what it installed: some packages read it."""
    found = importlib.metadata.distribution(distribution)
    (metadata,) = (file for file in found.files or () if file.name == "METADATA")
    return str(found.locate_file(metadata.parent))


def _preloaded(*modules: str) -> tuple[tuple[str, str], ...]:
    return tuple((module, _source(module)) for module in modules)


def _reading(organization: str) -> Profile:
    mount = Mount(str(workspace_of(organization)), INSIDE, make=True)
    return Profile(
        IsolationLevel.STANDARD, mounts=(mount,), preload=_preloaded("workspace", "read_file")
    )


def _writing(organization: str) -> Profile:
    mount = Mount(str(workspace_of(organization)), INSIDE, writable=True, make=True)
    return Profile(
        IsolationLevel.STANDARD, mounts=(mount,), preload=_preloaded("workspace", "write_file")
    )


def _validating(organization: str) -> Profile:
    return Profile(
        IsolationLevel.STANDARD,
        libraries=(_library("yaml"), _library("jsonschema_rs"), _library("lxml")),
        preload=(
            ("plain_yaml", _text_of("tools.definitions.values", "plain_yaml.py")),
            ("patterns", _text_of("tools.definitions.schemas", "patterns.py")),
            *_preloaded("positions", "toml_places", "table_schema", "tables", "xml_documents"),
            *_preloaded("validate_content"),
        ),
    )


def _fetching(organization: str) -> Profile:
    return Profile(
        IsolationLevel.STANDARD,
        libraries=(*map(_library, _EXTRACTOR), _record("trafilatura")),
        preload=_preloaded("charsets", "readable", "web_fetch"),
    )


def _programming(_organization: str) -> Profile:
    """The same for every organization: a program sees nothing but what it is given."""
    return Profile(IsolationLevel.RESTRICTED, preload=_preloaded("program"))


@lru_cache(maxsize=8)
def _text_of(package: str, file: str) -> str:
    """A reader that is used outside as well: what it imports, there is inside too."""
    return resources.files(package).joinpath(file).read_text("utf-8")


def _calling(_organization: str) -> Profile:
    """The same for every organization."""
    preload = (
        ("strictjson", _text_of("sandbox", "strictjson.py")),
        *_preloaded("charsets", "http_call"),
    )
    libraries = (_library("charset_normalizer"),)
    return Profile(IsolationLevel.STANDARD, libraries=libraries, preload=preload)


@dataclass(frozen=True, slots=True)
class Isolated:
    """A built-in that runs inside the sandbox: its module there and what it may see.

    `network` says that it reaches out, to what its organization allows.
    """

    module: str
    profile: Callable[[str], Profile]
    network: bool = False


ISOLATED = {
    "read_file": Isolated("read_file", _reading),
    "write_file": Isolated("write_file", _writing),
    "validate_content": Isolated("validate_content", _validating),
    "web_fetch": Isolated("web_fetch", _fetching, network=True),
    RUN_PROGRAM: Isolated("program", _programming),
}

# No tool of the product: what performs the request of tools of the type http.
HTTP_CALL = Isolated("http_call", _calling, network=True)

_ENCODING = {
    "name": "encoding",
    "type": "String",
    "description": "How the file holds its text; base64 for bytes that are no text.",
    "default": "utf-8",
    "enum": ["utf-8", "ascii", "utf-16", "base64"],
}

# What became of one call of a batch.
_OF_A_BATCH = {
    "type": "object",
    "properties": {
        "position": {"type": "integer"},
        "tool_name": {"type": "string"},
        "status": {"type": "string"},
        "execution_id": {"type": ["string", "null"]},
        "error_code": {"type": ["string", "null"]},
        "error_message": {"type": ["string", "null"]},
        "output": {},
        "output_left_out": {"type": "boolean"},
    },
    "required": ["position", "tool_name", "status", "execution_id"],
}

# An agent's conversation; `action` and `action_id` are of models that call tools natively.
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "user", "assistant", "tool"]},
        "content": {"type": "string"},
        "action": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "minLength": 1, "maxLength": 128},
                "name": {"type": "string", "minLength": 1, "maxLength": 128},
                "arguments": {"type": "object"},
            },
            "required": ["id", "name", "arguments"],
            "additionalProperties": False,
        },
        "further_actions": {
            "type": "array",
            "maxItems": 127,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "minLength": 1, "maxLength": 128},
                    "name": {"type": "string", "maxLength": 128},
                    "arguments": {"type": ["object", "string"]},
                },
                "required": ["id", "name", "arguments"],
                "additionalProperties": False,
            },
        },
        "action_id": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "required": ["role", "content"],
    "additionalProperties": False,
    "dependentRequired": {"further_actions": ["action"]},
    "dependentSchemas": {
        "action": {"properties": {"role": {"const": "assistant"}}},
        "action_id": {"properties": {"role": {"const": "tool"}}},
    },
    "if": {"properties": {"role": {"const": "tool"}}},
    "then": {"required": ["action_id"]},
}

_TOOL_OF_A_MODEL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 128},
        "description": {"type": "string"},
        "parameters": {"type": "object"},
    },
    "required": ["name", "description", "parameters"],
    "additionalProperties": False,
}

_ACTION = {
    "type": ["object", "null"],
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}

DEFINITIONS: tuple[dict[str, Any], ...] = (
    {
        "name": "read_file",
        "type": "builtin",
        "title": "Read a file",
        "description": "Read a file of the workspace, whole or in pieces, or list a directory.",
        "category": "FileSystem",
        "parameters": [
            {
                "name": "path",
                "type": "String",
                "description": "Relative to the workspace; '.' is the workspace, for a listing.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 4096},
            },
            _ENCODING,
            {
                "name": "what",
                "type": "String",
                "description": "content of a file, or the listing of a directory.",
                "default": "content",
                "enum": ["content", "listing"],
            },
            {
                "name": "offset",
                "type": "Integer",
                "description": "Where to begin: a byte of the file, an entry of the listing. Go on "
                "with the next_offset of the answer.",
                "default": 0,
                "schema": {"minimum": 0, "maximum": 2**53 - 1},
            },
            {
                "name": "length",
                "type": "Integer",
                "description": "How many bytes, or entries, at most.",
                "schema": {"minimum": 1, "maximum": 8 * 1024 * 1024},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "content": {"type": "string"},
                "size": {"type": "integer", "description": "Of the whole file, in bytes."},
                "encoding": {"type": "string"},
                "sha256": {
                    "type": ["string", "null"],
                    "description": "Of the whole file, with its first piece; write_file takes it "
                    "as if_hash.",
                },
                "offset": {"type": "integer"},
                "next_offset": {
                    "type": ["integer", "null"],
                    "description": "Where the rest begins; null when there is none.",
                },
                "path": {"type": "string"},
                "entries": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "kind": {"enum": ["file", "directory", "link", "other"]},
                            "size": {"type": "integer"},
                            "modified": {"type": "string"},
                        },
                    },
                },
                "count": {"type": "integer", "description": "Of all entries."},
            },
            "required": ["next_offset"],
            "additionalProperties": False,
        },
        "constraints": {
            "max_execution_time": "PT30S",
            "max_output_size": 16 * 1024 * 1024,
            "allow_side_effects": False,
            "required_isolation": "Standard",
        },
        "required_permissions": ["tool.filesystem.read"],
        "group": ["read-only"],
        "delivery": "pure",
        "capabilities": ["read", "file", "text"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "write_file",
        "type": "builtin",
        "title": "Write a file",
        "description": "Write, append to or create a file in the workspace.",
        "category": "FileSystem",
        "parameters": [
            {
                "name": "path",
                "type": "String",
                "description": "Relative to the workspace; missing folders are made.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 4096},
            },
            {
                "name": "content",
                "type": "String",
                "description": "What to write.",
                "required": True,
            },
            {
                "name": "mode",
                "type": "String",
                "description": "overwrite replaces, append adds, create refuses what is there.",
                "default": "overwrite",
                "enum": ["overwrite", "append", "create"],
            },
            _ENCODING,
            {
                "name": "if_hash",
                "type": "String",
                "description": "The sha256 the file had when it was read: nothing is written when "
                "somebody else wrote meanwhile.",
                "schema": {"pattern": "^[0-9a-fA-F]{64}$"},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "bytes_written": {"type": "integer"},
                "size": {"type": "integer"},
                "mode": {"type": "string"},
                "sha256": {"type": "string", "description": "Of the file as it is now."},
            },
            "required": ["path", "bytes_written", "size", "mode", "sha256"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT30S", "allow_side_effects": True},
        "required_permissions": ["tool.filesystem.write"],
        "group": ["write"],
        "delivery": "external",
        "capabilities": ["write", "file", "text"],
        "metadata": {"riskLevel": "medium"},
    },
    {
        "name": "validate_content",
        "type": "builtin",
        "title": "Validate content",
        "description": "Validate a text against a schema and name every error with its place: "
        "JSON, YAML and TOML against a JSON Schema, CSV against a table schema, XML against an XML "
        "Schema or for being well-formed.",
        "category": "System",
        "parameters": [
            {
                "name": "content",
                "type": "String",
                "description": "The text to validate.",
                "required": True,
            },
            {
                "name": "schema",
                "type": "Object",
                "description": "A JSON Schema, or for CSV a table schema (fields, primaryKey, "
                "missingValues). Nothing it refers to is fetched.",
            },
            {
                "name": "xsd",
                "type": "String",
                "description": "An XML Schema, for XML. Nothing it includes is fetched.",
                "schema": {"maxLength": 1_000_000},
            },
            {
                "name": "schema_name",
                "type": "String",
                "description": "A schema that is kept in the catalog, or json-schema or "
                "tool-parameters, instead of one of your own.",
                "schema": {"minLength": 1, "maxLength": 63},
            },
            {
                "name": "schema_version",
                "type": "Integer",
                "description": "Of the named schema; left out, the newest.",
                "schema": {"minimum": 1, "maximum": 2**31 - 1},
            },
            {
                "name": "format",
                "type": "String",
                "description": "What the text is.",
                "default": "json",
                "enum": ["json", "yaml", "toml", "csv", "xml"],
            },
            {
                "name": "give_document",
                "type": "Boolean",
                "description": "Give back what was read of JSON, YAML or TOML that is valid, so "
                "that a next step can use its parts.",
                "default": False,
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "valid": {"type": "boolean"},
                "document": {"description": "What was read, where that was asked for."},
                "error_count": {"type": "integer"},
                "errors": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["valid", "errors", "error_count"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT30S", "allow_side_effects": False},
        "group": ["read-only"],
        "delivery": "pure",
        "capabilities": ["validate", "json", "yaml", "toml", "csv", "xml", "schema"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "web_fetch",
        "type": "builtin",
        "title": "Fetch a web page",
        "description": "Fetch a page of an allowed host: its main text, Markdown or the bytes as "
        "they came. A page of an error is returned like any other; its status says so.",
        "category": "Network",
        "parameters": [
            {
                "name": "url",
                "type": "String",
                "description": "The address, with http:// or https://. Up to 5 redirects are "
                "followed, each only to an allowed host.",
                "required": True,
                "schema": {"minLength": 8, "maxLength": 8192},
            },
            {
                "name": "format",
                "type": "String",
                "description": "text is what a person reads of the page; markdown keeps headings, "
                "lists, tables and links; raw changes nothing, with base64 for what is no text. "
                "What is no HTML is never rewritten.",
                "default": "text",
                "enum": ["text", "markdown", "raw"],
            },
            {
                "name": "max_bytes",
                "type": "Integer",
                "description": "The largest answer to accept, unpacked. A larger one is an error.",
                "default": 2 * 1024 * 1024,
                "schema": {"minimum": 1, "maximum": 10 * 1024 * 1024},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "What answered, after redirects."},
                "status": {"type": "integer"},
                "content_type": {"type": "string"},
                "charset": {"type": ["string", "null"]},
                "title": {"type": "string"},
                "content": {"type": "string"},
                "encoding": {"enum": ["text", "base64"]},
                "extraction": {
                    "enum": ["main", "page", "none"],
                    "description": "main: the main content of the page. page: all its visible "
                    "text, since no main content was found. none: nothing was taken out.",
                },
                "size_bytes": {"type": "integer"},
                "truncated": {"type": "boolean"},
                "redirects": {"type": "integer", "description": "How many were followed."},
            },
            "required": [
                *("url", "status", "content_type", "charset", "title", "content", "encoding"),
                *("extraction", "size_bytes", "truncated", "redirects"),
            ],
            "additionalProperties": False,
        },
        "constraints": {
            "max_execution_time": "PT60S",
            "max_output_size": 16 * 1024 * 1024,
            "allow_side_effects": False,
            "required_isolation": "Standard",
        },
        "required_permissions": ["tool.network.fetch"],
        "group": ["network"],
        "delivery": "pure",
        "capabilities": ["fetch", "web", "html", "markdown"],
        "metadata": {"riskLevel": "medium"},
    },
    {
        "name": "execute_ckvs_query",
        "type": "builtin",
        "title": "Query the knowledge graph",
        "description": "Run a SPARQL SELECT, ASK, CONSTRUCT or DESCRIBE on the organization's "
        "graph. It only reads, and names no graph and no other endpoint.",
        "category": "Database",
        "parameters": [
            {
                "name": "query",
                "type": "String",
                "description": "The query, in SPARQL 1.1.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 10_000},
            },
            {
                "name": "parameters",
                "type": "Object",
                "description": "Values for variables of the query, by their names: a text, a "
                "number, true or false, an IRI in angle brackets, or an object with value and "
                "language or datatype. Use them instead of writing a value into the query.",
                "schema": {
                    "maxProperties": 20,
                    "additionalProperties": {"type": ["string", "number", "boolean", "object"]},
                },
            },
            {
                "name": "limit",
                "type": "Integer",
                "description": "The most rows or statements to return.",
                "default": 100,
                "schema": {"minimum": 1, "maximum": 100},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "form": {"enum": ["rows", "boolean", "statements"]},
                "variables": {"type": "array", "items": {"type": "string"}},
                "rows": {"type": "array", "items": {"type": "object"}},
                "boolean": {"type": "boolean"},
                "statements": {"type": "array", "items": {"type": "object"}},
                "truncated": {"type": "boolean"},
            },
            "required": ["form", "truncated"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT30S", "allow_side_effects": False},
        "required_permissions": ["tool.knowledge.read"],
        "group": ["knowledge"],
        "delivery": "pure",
        "capabilities": ["query", "knowledge", "sparql"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "create_entity",
        "type": "builtin",
        "title": "Create an entity",
        "description": "Create an entity of the organization's graph, or add to the one that has "
        "the same type and key. Said again, nothing is doubled.",
        "category": "Knowledge",
        "parameters": [
            {
                "name": "type",
                "type": "String",
                "description": "What it is: a name such as Person, or an IRI.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 2_000},
            },
            {
                "name": "name",
                "type": "String",
                "description": "Its label.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 2_000},
            },
            {
                "name": "language",
                "type": "String",
                "description": "Of the name, such as en.",
                "schema": {"maxLength": 40},
            },
            {
                "name": "labels",
                "type": "Object",
                "description": 'Labels by language: {"de": "Sauerstoff"}; lists for several.',
                "default": {},
            },
            {
                "name": "description",
                "type": "String",
                "description": "A sentence about it.",
                "schema": {"maxLength": 50_000},
            },
            {
                "name": "key",
                "type": "String",
                "description": "What tells it from others of its type; the name, if left out.",
                "schema": {"minLength": 1, "maxLength": 500},
            },
            {
                "name": "iri",
                "type": "String",
                "description": "Its own IRI, in place of one made of type and key.",
                "schema": {"minLength": 1, "maxLength": 2_000},
            },
            {
                "name": "properties",
                "type": "Object",
                "description": "Values by name or IRI: texts, numbers, true, false, "
                '{"value", "language"} or {"value", "datatype": "date"}; lists for several.',
                "default": {},
            },
            {
                "name": "relations",
                "type": "Object",
                "description": 'Other entities by name or IRI: an IRI or {"type", "key"}; lists '
                "for several.",
                "default": {},
            },
            {
                "name": "on_existing",
                "type": "String",
                "description": "What to do where there is one: add to it, or refuse.",
                "default": "merge",
                "enum": ["merge", "refuse"],
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "iri": {"type": "string"},
                "created": {"type": "boolean"},
                "merged": {"type": "boolean"},
                "statements": {"type": "integer"},
            },
            "required": ["iri", "created", "merged", "statements"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT30S", "allow_side_effects": True},
        "required_permissions": ["tool.knowledge.write"],
        "group": ["knowledge/write"],
        "delivery": "idempotent",
        "capabilities": ["create", "knowledge", "entity"],
        "metadata": {"riskLevel": "medium"},
    },
    {
        "name": "search_knowledge",
        "type": "builtin",
        "title": "Search the knowledge graph",
        "description": "Find entities of the organization's graph by words of their labels, "
        "descriptions and other texts, best first. Words in double quotes are one phrase, OR "
        "stands between alternatives, and a minus before a word excludes it.",
        "category": "Knowledge",
        "parameters": [
            {
                "name": "query",
                "type": "String",
                "description": "Words to look for.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 500},
            },
            {
                "name": "type",
                "type": "String",
                "description": "Only entities of this type: its IRI, the end of it, or its label.",
                "schema": {"minLength": 1, "maxLength": 2_000},
            },
            {
                "name": "limit",
                "type": "Integer",
                "description": "The most entities to return.",
                "default": 10,
                "schema": {"minimum": 1, "maximum": 50},
            },
            {
                "name": "offset",
                "type": "Integer",
                "description": "How many to leave out: next_offset of the page before.",
                "default": 0,
                "schema": {"minimum": 0, "maximum": 10_000},
            },
            {
                "name": "language",
                "type": "String",
                "description": "In which language labels are shown where there are several.",
                "default": "en",
                "schema": {"pattern": "^[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8}){0,4}$"},
            },
            {
                "name": "depth",
                "type": "Integer",
                "description": "How many steps of neighbours to return with what is found.",
                "default": 0,
                "schema": {"minimum": 0, "maximum": 2},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "results": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "iri": {"type": "string"},
                            "label": {"type": "string"},
                            "language": {"type": "string"},
                            "description": {"type": "string"},
                            "types": {"type": "array", "items": {"type": "string"}},
                            "match": {
                                "enum": ["exact", "label", "description", "text", "similar"],
                                "description": "Where the words are; similar is a label that is "
                                "spelt nearly so.",
                            },
                        },
                        "required": ["iri", "label", "language", "description", "types", "match"],
                        "additionalProperties": False,
                    },
                },
                "matched": {
                    "enum": ["all", "beginnings", "any", "similar"],
                    "description": "Whether all words are there, as beginnings, or only some.",
                },
                "total": {"type": "integer"},
                "total_is_exact": {"type": "boolean", "description": "Otherwise there are more."},
                "next_offset": {"type": ["integer", "null"]},
                "neighbours": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            **{
                                one: {"type": "string"}
                                for one in ("subject", "predicate", "object")
                            },
                            "depth": {"type": "integer"},
                        },
                        "required": ["subject", "predicate", "object", "depth"],
                        "additionalProperties": False,
                    },
                },
                "neighbours_truncated": {"type": "boolean"},
                "labels": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "description": "What the neighbours are called.",
                },
                "indexed_at": {"type": ["string", "null"]},
                "stale": {
                    "type": "boolean",
                    "description": "What was written lately may not be found yet.",
                },
                "text": {"type": "string"},
            },
            "required": [
                *("results", "matched", "total", "total_is_exact", "next_offset", "neighbours"),
                *("neighbours_truncated", "labels", "indexed_at", "stale", "text"),
            ],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT30S", "allow_side_effects": False},
        "required_permissions": ["tool.knowledge.read"],
        "group": ["knowledge/read"],
        "delivery": "pure",
        "capabilities": ["search", "knowledge", "entities"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "send_message",
        "type": "builtin",
        "title": "Send a message",
        "description": "Send a message through a channel that an administrator has defined: "
        "e-mail, a webhook, a chat or somebody's inbox. A person confirms each one.",
        "category": "Communication",
        "parameters": [
            {
                "name": "channel",
                "type": "String",
                "description": "The channel's name.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 63},
            },
            {
                "name": "to",
                "type": "Array",
                "description": "E-mail addresses, or names of people for an inbox, all of which "
                "the channel must allow. Empty for webhooks and chats.",
                "default": [],
                "schema": {
                    "items": {"type": "string", "minLength": 1, "maxLength": 254},
                    "maxItems": 100,
                    "uniqueItems": True,
                },
            },
            {
                "name": "subject",
                "type": "String",
                "description": "One line.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 200},
            },
            {
                "name": "body",
                "type": "String",
                "description": "The text.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 50_000},
            },
            {
                "name": "data",
                "type": "Object",
                "description": "Values that the channel's template asks for.",
                "default": {},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "message_id": {"type": "string"},
                "channel": {"type": "string"},
                "kind": {"type": "string"},
                "recipients": {"type": "array", "items": {"type": "string"}},
                "state": {"type": "string"},
                "answer": {"type": "string", "description": "What the provider said."},
            },
            "required": ["message_id", "channel", "kind", "recipients", "state", "answer"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT60S", "allow_side_effects": True},
        "required_permissions": ["tool.message.send"],
        "requires_confirmation": True,
        "group": ["messages"],
        "delivery": "external",
        "capabilities": ["send", "message", "email", "webhook"],
        "metadata": {"riskLevel": "high"},
    },
    {
        "name": "run_batch",
        "type": "builtin",
        "title": "Make many calls",
        "description": (
            "Make up to 1,000 calls, one after the other or several at once. Each meets every gate"
            " by itself; where some need a person's consent, one question is asked for all."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "inputs",
                "type": "Array",
                "description": "The calls, in their order.",
                "required": True,
                "schema": {
                    "minItems": 1,
                    "maxItems": 1000,
                    "items": {
                        "type": "object",
                        "properties": {
                            "tool_name": {"type": "string", "minLength": 1, "maxLength": 128},
                            "parameters": {"type": "object"},
                        },
                        "required": ["tool_name", "parameters"],
                        "additionalProperties": False,
                    },
                },
            },
            {
                "name": "mode",
                "type": "String",
                "description": "One after the other, or several at once.",
                "default": "sequential",
                "enum": ["sequential", "parallel"],
            },
            {
                "name": "max_parallel",
                "type": "Integer",
                "description": "How many may be open at once, where it is parallel.",
                "default": 8,
                "schema": {"minimum": 1, "maximum": 50},
            },
            {
                "name": "stop_on_error",
                "type": "Boolean",
                "description": "Make no further call once one has failed.",
                "default": False,
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "results": {"type": "array", "items": _OF_A_BATCH},
                "succeeded": {"type": "integer"},
                "failed": {"type": "integer"},
                "cancelled": {"type": "integer"},
            },
            "required": ["results", "succeeded", "failed", "cancelled"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT24H", "allow_side_effects": True},
        "group": ["composition"],
        "delivery": "idempotent",
        "capabilities": ["batch", "parallel", "many"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "run_agent",
        "type": "builtin",
        "title": "Let an agent work on a question",
        "description": (
            "An agent answers a question with the tools that its caller may use in the groups and"
            " the state of the call. Each thing it does meets every gate by itself."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "question",
                "type": "String",
                "description": "What is to be answered or done.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 20000},
            },
            {
                "name": "pattern",
                "type": "String",
                "description": "Step by step, or by a plan with a confidence for each step.",
                "default": "react",
                "enum": ["react", "plan"],
            },
            {
                "name": "history",
                "type": "Array",
                "description": "Steps that were taken before.",
                "default": [],
                "schema": {
                    "maxItems": 50,
                    "items": {
                        "type": "object",
                        "properties": {
                            "thought": {"type": "string", "maxLength": 20000},
                            "action": {"type": "string", "maxLength": 128},
                            "arguments": {"type": "object"},
                            "observation": {"type": "string", "maxLength": 100000},
                        },
                        "additionalProperties": False,
                    },
                },
            },
            {
                "name": "model",
                "type": "String",
                "description": "Another model than the installation's; one that has a price.",
                "default": "",
                "schema": {"maxLength": 200},
            },
            {
                "name": "max_iterations",
                "type": "Integer",
                "description": "After so many turns it gives the best answer it has.",
                "default": 10,
                "schema": {"minimum": 1, "maximum": 50},
            },
            {
                "name": "max_tokens",
                "type": "Integer",
                "description": "Of all its questions to the model and their answers together.",
                "default": 100000,
                "schema": {"minimum": 1, "maximum": 2000000},
            },
            {
                "name": "max_cost",
                "type": "String",
                "description": "What all its calls may cost together; empty: what its caller may.",
                "default": "",
                "schema": {"pattern": r"^(\d{1,9}(\.\d{1,6})?)?$"},
            },
            {
                "name": "confidence",
                "type": "Number",
                "description": "Of a plan: a person is asked about a step that is less sure.",
                "default": 0.7,
                "schema": {"minimum": 0, "maximum": 1},
            },
            {
                "name": "thresholds",
                "type": "Object",
                "description": "The same by the name of a tool.",
                "default": {},
                "schema": {
                    "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1},
                    "maxProperties": 100,
                },
            },
            {
                "name": "continues",
                "type": "String",
                "description": "A request of an agent that this one goes on from.",
                "default": "",
                "schema": {"maxLength": 36},
            },
            {
                "name": "replays",
                "type": "String",
                "description": "One whose recorded results stand for calls: no tool is called.",
                "default": "",
                "schema": {"maxLength": 36},
            },
            {
                "name": "shared_with",
                "type": "Array",
                "description": "Agents that may go on from this one, if they have the same rights.",
                "default": [],
                "schema": {
                    "items": {"type": "string", "minLength": 1, "maxLength": 63},
                    "maxItems": 20,
                },
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "answer": {"type": "string"},
                "session": {"type": ["string", "null"]},
                "state": {"type": "string"},
                "iterations": {"type": "integer"},
                "tokens": {
                    "type": "object",
                    "properties": {
                        "input": {"type": "integer"},
                        "output": {"type": "integer"},
                    },
                    "required": ["input", "output"],
                    "additionalProperties": False,
                },
                "cost": {"type": "string"},
                "plan": {"type": ["object", "null"]},
            },
            "required": ["answer", "session", "state", "iterations", "tokens", "cost"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT24H", "allow_side_effects": True},
        "group": ["agents"],
        "delivery": "idempotent",
        "capabilities": ["agent", "reason", "plan"],
        "metadata": {"riskLevel": "medium"},
    },
    {
        "name": "call_tool",
        "type": "builtin",
        "title": "Call a tool by its name",
        "description": (
            "Call a tool that find_tools has found, without its definition loaded. Every limit of"
            " that tool holds, as if it were called directly."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "tool_name",
                "type": "String",
                "description": "As find_tools names it.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 128},
            },
            {
                "name": "parameters",
                "type": "Object",
                "description": "As its own schema has them.",
                "default": {},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "tool_name": {"type": "string"},
                "execution_id": {"type": "string"},
                "output": {},
            },
            "required": ["tool_name", "execution_id", "output"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT24H", "allow_side_effects": True},
        "group": ["composition"],
        "delivery": "idempotent",
        "capabilities": ["call", "tool", "meta"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "find_tools",
        "type": "builtin",
        "title": "Find tools",
        "description": "Find the tools for a task among those you may use; call_tool calls one.",
        "category": "System",
        "parameters": [
            {
                "name": "query",
                "type": "String",
                "description": "What is to be done, in words.",
                "default": "",
                "schema": {"maxLength": 1_000},
            },
            {
                "name": "capabilities",
                "type": "Array",
                "description": "Only tools that have all of these.",
                "default": [],
                "schema": {"items": {"type": "string"}, "maxItems": 20},
            },
            {
                "name": "limit",
                "type": "Integer",
                "description": "The most tools to return.",
                "default": 5,
                "schema": {"minimum": 1, "maximum": 25},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "tools": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "title": {"type": ["string", "null"]},
                            "description": {"type": "string"},
                            "capabilities": {"type": "array", "items": {"type": "string"}},
                            "parameters": {"type": "object"},
                            "requires_confirmation": {"type": "boolean"},
                            "cost": {"type": "string"},
                            "tokens": {"type": "integer"},
                        },
                        "required": ["name", "description", "parameters", "tokens"],
                    },
                },
                "total": {"type": "integer"},
                "tokens_of_all": {
                    "type": "integer",
                    "description": "What the definitions of all of them would cost, about.",
                },
            },
            "required": ["tools", "total", "tokens_of_all"],
            "additionalProperties": False,
        },
        "constraints": {"max_execution_time": "PT30S", "allow_side_effects": False},
        "group": ["composition"],
        "delivery": "pure",
        "capabilities": ["find", "tool", "search", "meta"],
        "metadata": {"riskLevel": "low"},
    },
    {
        "name": "run_program",
        "type": "builtin",
        "title": "Run a program that calls tools",
        "description": (
            "Run a short Python program in which your tools are functions: read_file(path='x'),"
            " tools['a.b'](x=1), call_many([('name', {...}), ...]). Only what it prints, and the"
            " variable result, comes back. A failed call raises ToolError(code, message). It is run"
            " anew after each call, with the answers so far: it must do the same each time."
        ),
        "category": "CodeExecution",
        "parameters": [
            {
                "name": "source",
                "type": "String",
                "description": "The text of the program.",
                "required": True,
                "schema": {"minLength": 1, "maxLength": 100_000},
            },
            {
                "name": "inputs",
                "type": "Object",
                "description": "Values that the program finds as inputs.",
                "default": {},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "printed": {"type": "string"},
                "result": {"description": "What the program left in its variable result."},
                "calls": {"type": "integer", "description": "How many calls it made."},
            },
            "required": ["printed", "result", "calls"],
            "additionalProperties": False,
        },
        "constraints": {
            "max_execution_time": "PT24H",
            "allow_side_effects": True,
            "required_isolation": "Restricted",
        },
        "group": ["composition"],
        "delivery": "idempotent",
        "capabilities": ["code", "program", "python", "compose"],
        "metadata": {"riskLevel": "medium"},
    },
    {
        "name": ASK_MODEL,
        "type": "builtin",
        "title": "Ask a model for an agent's next move",
        "description": (
            "Ask the installation's model one question of many messages and read its answer as a"
            " move: one action of a tool, or an answer. Nothing is called by it."
        ),
        "category": "System",
        "parameters": [
            {
                "name": "messages",
                "type": "Array",
                "description": "The conversation so far, in its order.",
                "required": True,
                "schema": {"minItems": 1, "maxItems": 400, "items": _MESSAGE},
            },
            {
                "name": "tools",
                "type": "Array",
                "description": "What the model may call, in the native format.",
                "default": [],
                "schema": {"maxItems": 400, "items": _TOOL_OF_A_MODEL},
            },
            {
                "name": "format",
                "type": "String",
                "description": "How a move is told: by the endpoint's own tool calls, by the lines"
                " Thought, Action, Arguments and Answer, or not at all: the text is the answer.",
                "default": "plain",
                "enum": ["native", "text", "plain"],
            },
            {
                "name": "model",
                "type": "String",
                "description": "Its name, where it is not the installation's usual one.",
                "default": "",
                "schema": {"maxLength": 200},
            },
            {
                "name": "max_tokens",
                "type": "Integer",
                "description": "How long the answer may be.",
                "default": 1024,
                "schema": {"minimum": 1, "maximum": 16_384},
            },
        ],
        "output_schema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "All that was said."},
                "thought": {"type": "string"},
                "action": _ACTION,
                "answer": {"type": ["string", "null"]},
                "flaw": {
                    "type": ["string", "null"],
                    "description": "Why it is neither an action nor an answer, for the model.",
                },
                "further_actions": {
                    "type": "array",
                    "description": "Calls of the same reply behind the action, as they were said.",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
                        "required": ["name", "arguments"],
                        "additionalProperties": False,
                    },
                },
                "model": {"type": "string"},
                "warnings": {"type": "array", "items": {"type": "string"}},
                "input_tokens": {"type": ["integer", "null"]},
                "output_tokens": {"type": ["integer", "null"]},
            },
            "required": [
                *("text", "thought", "action", "answer", "flaw", "model", "input_tokens"),
                *("output_tokens", "further_actions", "warnings"),
            ],
            "additionalProperties": False,
        },
        "constraints": {
            "max_execution_time": "PT2M",
            "max_output_size": 2 * 1024 * 1024,
            "allow_side_effects": False,
        },
        "group": ["agents"],
        "delivery": "idempotent",
        "capabilities": ["ask", "model", "agent", "llm"],
        "metadata": {"riskLevel": "low"},
    },
)

GROUPS: tuple[tuple[str, str, list[str]], ...] = (
    ("default", "Tools that name no group of their own.", []),
    ("read-only", "Tools that change nothing.", ["tool.filesystem.read"]),
    ("write", "Tools that change files.", ["tool.filesystem.read", "tool.filesystem.write"]),
    ("network", "Tools that reach hosts outside.", ["tool.network.fetch"]),
    ("knowledge", "Tools of the knowledge graph.", ["tool.knowledge.read"]),
    ("knowledge/read", "Tools that read the graph.", ["tool.knowledge.read"]),
    ("knowledge/write", "Tools that add to the graph.", ["tool.knowledge.write"]),
    ("messages", "Tools that send messages to people.", ["tool.message.send"]),
    ("composition", "Tools that make calls of other tools.", []),
    ("agents", "Tools that think with a model.", []),
)
