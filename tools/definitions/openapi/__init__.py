"""Tools from an OpenAPI document (3.0, 3.1): each operation becomes a definition of type http.

Pure: nothing is fetched. What the document says of other documents, and what a request of ours
cannot be, is a flaw of the operation that needs it and of no other.
"""

from tools.definitions.openapi.document import BadDocument, identity
from tools.definitions.openapi.drafts import Draft, drafts

__all__ = ["BadDocument", "Draft", "drafts", "identity"]
