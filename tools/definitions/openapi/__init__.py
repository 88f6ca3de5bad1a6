"""Converts an OpenAPI document (3.0, 3.1) to tools: each operation becomes a definition of type
http.

Pure: nothing is fetched. A reference to another document, or a request that we cannot send, is an
error of the operation that needs it and of no other.
"""

from tools.definitions.openapi.openapi_document import BadOpenApiDocument, operation_identity
from tools.definitions.openapi.operations import OperationDraft, draft_operations

__all__ = ["BadOpenApiDocument", "OperationDraft", "draft_operations", "operation_identity"]
