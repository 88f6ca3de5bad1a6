"""The definitions of built-in tools for files, documents and the web."""

from typing import Any

_ENCODING = {
    "name": "encoding",
    "type": "String",
    "description": "How the file holds its text; base64 for bytes that are no text.",
    "default": "utf-8",
    "enum": ["utf-8", "ascii", "utf-16", "base64"],
}

# The schemas that `validate_content` offers by name.
SCHEMAS: dict[str, Any] = {
    "json-schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    "tool-parameters": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name", "description", "type"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "description": {"type": "string", "minLength": 1},
                "type": {"enum": ["String", "Integer", "Number", "Boolean", "Array", "Object"]},
                "required": {"type": "boolean"},
                "enum": {"type": "array", "minItems": 1},
                "schema": {"type": "object"},
            },
        },
    },
}

CONTENT_TOOLS: tuple[dict[str, Any], ...] = (
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
)
