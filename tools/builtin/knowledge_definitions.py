"""The definitions of built-in tools for knowledge graphs and messages."""

from typing import Any

KNOWLEDGE_TOOLS: tuple[dict[str, Any], ...] = (
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
)
