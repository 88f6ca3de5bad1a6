"""The enumerations of a definition."""

from enum import StrEnum


class Category(StrEnum):
    FILE_SYSTEM = "FileSystem"
    NETWORK = "Network"
    DATABASE = "Database"
    CODE_EXECUTION = "CodeExecution"
    EXTERNAL_API = "ExternalApi"
    KNOWLEDGE = "Knowledge"
    COMMUNICATION = "Communication"
    SYSTEM = "System"


# Specification S4's four categories (ruling 15).
CATEGORY_ALIASES = {
    "data_access": Category.DATABASE,
    "computation": Category.CODE_EXECUTION,
    "external_api": Category.EXTERNAL_API,
    "file_system": Category.FILE_SYSTEM,
}


class ParameterType(StrEnum):
    STRING = "String"
    INTEGER = "Integer"
    NUMBER = "Number"
    BOOLEAN = "Boolean"
    ARRAY = "Array"
    OBJECT = "Object"


class ToolType(StrEnum):
    BUILTIN = "builtin"
    CODE = "code"
    HTTP = "http"
    MCP = "mcp-tool"
    SERVICE = "tool-service"
    PROMPT = "prompt"
    TEXT_COMPLETION = "text-completion"
    KNOWLEDGE_QUERY = "knowledge-query"
    STRUCTURED_QUERY = "structured-query"
    GRAPH_UPDATE = "graph-update"
    CHAIN = "chain"


# The code of a tool whose stored definition is not the one that was signed.
SIGNATURE_INVALID = "SIGNATURE_INVALID"

# Types whose definitions are older than typed parameters (ruling 13): without a schema or required
# parameters, their arguments are passed on unchanged.
PASSING_TYPES = frozenset(
    {
        ToolType.MCP, ToolType.SERVICE, ToolType.PROMPT, ToolType.TEXT_COMPLETION,
        ToolType.KNOWLEDGE_QUERY, ToolType.STRUCTURED_QUERY, ToolType.GRAPH_UPDATE,
    }
)  # fmt: skip


class Delivery(StrEnum):
    PURE = "pure"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    EXTERNAL = "external"


class ArgumentValidation(StrEnum):
    OFF = "off"
    WARN = "warn"
    ENFORCE = "enforce"


class Isolation(StrEnum):
    NONE = "None"
    STANDARD = "Standard"
    STRICT = "Strict"
    RESTRICTED = "Restricted"
