"""Denials: why a request was not sent, or not completely, as a code for the tool and the record."""

from enum import StrEnum


class Code(StrEnum):
    """In the order of the checks."""

    REQUEST_LIMIT = "REQUEST_LIMIT"
    CONNECTION_LIMIT = "CONNECTION_LIMIT"
    REQUEST_INVALID = "REQUEST_INVALID"
    HOST_INVALID = "HOST_INVALID"
    HOST_NOT_ALLOWED = "HOST_NOT_ALLOWED"
    PORT_NOT_ALLOWED = "PORT_NOT_ALLOWED"
    TUNNEL_NOT_ALLOWED = "TUNNEL_NOT_ALLOWED"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    PATH_NOT_ALLOWED = "PATH_NOT_ALLOWED"
    LOOKUP_LIMIT = "LOOKUP_LIMIT"
    NAME_NOT_RESOLVED = "NAME_NOT_RESOLVED"
    ADDRESS_NOT_ALLOWED = "ADDRESS_NOT_ALLOWED"
    CONNECT_FAILED = "CONNECT_FAILED"
    TLS_FAILED = "TLS_FAILED"
    RESPONSE_INVALID = "RESPONSE_INVALID"
    TOO_LARGE = "TOO_LARGE"
    TIMEOUT = "TIMEOUT"


class Denied(Exception):
    """Ends one request. The reason is for the tool: it reveals nothing of this machine."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
