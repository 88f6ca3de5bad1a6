"""A record as an event of the Open Cybersecurity Schema Framework: class API Activity (6003), with
the profile `record_integrity` where the record is sealed. Pure.

`raw_data` is the very line that was sealed, and the attestation's fingerprint is the hash of its
leaf (RFC 6962): it can be verified with a proof and a checkpoint.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from audit.events import Outcome

VERSION = "1.9.0-dev"  # the first with `record_integrity`
_CLASS, _CATEGORY = 6003, 6
_OTHER = 99
_CREATE, _READ, _UPDATE, _DELETE = 1, 2, 3, 4
_VERBS = (("CREATE", _CREATE), ("INSTALL", _CREATE), ("OPEN", _CREATE), ("READ", _READ),
          ("EXPORT", _READ), ("LIST", _READ), ("DELETE", _DELETE), ("REMOVE", _DELETE),
          ("ERASE", _DELETE), ("REVOKE", _DELETE), ("CHANGE", _UPDATE), ("UPDATE", _UPDATE),
          ("ENABLE", _UPDATE), ("DISABLE", _UPDATE))  # fmt: skip
_ACTIVITIES = {_CREATE: "Create", _READ: "Read", _UPDATE: "Update", _DELETE: "Delete",
               _OTHER: "Other"}  # fmt: skip
_STATUS = {Outcome.SUCCESS: (1, "Success"), Outcome.CHANGED: (1, "Success"),
           Outcome.FAILURE: (2, "Failure"), Outcome.DENIED: (2, "Failure")}  # fmt: skip
_SEVERITY = {Outcome.FAILURE: (2, "Low"), Outcome.DENIED: (3, "Medium")}
_USER_TYPES = {"person": (1, "User"), "agent": (_OTHER, "Agent"), "system": (3, "System")}


@dataclass(frozen=True, slots=True)
class Seal:
    """A record's position in its log, and the checkpoint that covers it."""

    origin: str
    index: int
    fingerprint: str
    checkpoint: str


def ocsf_event(record: dict[str, Any], occurred_at: datetime, line: str, seal: Seal | None,
          ) -> dict[str, Any]:  # fmt: skip
    """`record` is the member of that name in the sealed line."""
    activity = _activity(record["code"])
    status, status_name = _STATUS.get(record["outcome"], (_OTHER, "Other"))
    severity, severity_name = _SEVERITY.get(record["outcome"], (1, "Informational"))
    profiles = ["record_integrity"] if seal else []
    return {
        "class_uid": _CLASS,
        "class_name": "API Activity",
        "category_uid": _CATEGORY,
        "category_name": "Application Activity",
        "activity_id": activity,
        "activity_name": _ACTIVITIES[activity],
        "type_uid": _CLASS * 100 + activity,
        "time": round(occurred_at.timestamp() * 1000),
        "severity_id": severity,
        "severity": severity_name,
        "status_id": status,
        "status": status_name if status != _OTHER else record["outcome"],
        **({"status_code": record["reason"]} if record["reason"] else {}),
        "metadata": {
            "version": VERSION,
            "uid": record["id"],
            "event_code": record["code"],
            "product": {"name": "Toolcrib", "vendor_name": "Toolcrib"},
            "log_name": "audit",
            "tenant_uid": record["organization"],
            "profiles": profiles,
        },
        "actor": {"user": _user(record)},
        "src_endpoint": _source(record),
        "api": _api(record),
        **({"resources": [_resource(record)]} if record["subject"] else {}),
        **({"attestation": _attestation(record, seal)} if seal else {}),
        "raw_data": line,
        "unmapped": _unmapped(record, seal),
    }


def _activity(code: str) -> int:
    """The activity of a code, by its last part; running a tool is none of the four."""
    family, _, deed = code.partition(".")
    words = {*deed.split("_"), family if family == "LIST" else ""}
    return next((activity for verb, activity in _VERBS if verb in words), _OTHER)


def _user(record: dict[str, Any]) -> dict[str, Any]:
    kind, name = _USER_TYPES.get(record["actor_kind"], (_OTHER, record["actor_kind"]))
    user: dict[str, Any] = {"name": record["actor"], "type_id": kind, "type": name}
    if record["actor_id"]:
        user["uid"] = record["actor_id"]
    if record["token_id"]:
        user["credential_uid"] = record["token_id"]
    return user | {"org": {"name": record["organization"]}}


def _source(record: dict[str, Any]) -> dict[str, Any]:
    """Required; a record without an address came from the product itself."""
    return {"ip": record["source_ip"]} if record["source_ip"] else {"name": "toolcrib"}


def _api(record: dict[str, Any]) -> dict[str, Any]:
    api: dict[str, Any] = {"operation": record["code"], "service": {"name": "Toolcrib"}}
    if record["request_id"]:
        api["request"] = {"uid": record["request_id"]}
    if record["outcome"] in _STATUS:
        api["response"] = {"message": record["outcome"]} | (
            {"error": record["reason"]} if record["reason"] else {}
        )
    return api


def _resource(record: dict[str, Any]) -> dict[str, Any]:
    resource = {"name": record["subject"]}
    if record["subject_digest"]:
        resource["uid"] = record["subject_digest"]
    return resource


def _attestation(record: dict[str, Any], seal: Seal) -> dict[str, Any]:
    return {
        "uid": f"{seal.origin}/{seal.index}",
        "authority_uid": seal.origin,
        "chain_uid": seal.origin,
        "fingerprint": {
            "algorithm_id": _OTHER,
            "algorithm": "RFC 6962 leaf hash (SHA-256) of raw_data",
            "value": seal.fingerprint,
        },
    }


def _unmapped(record: dict[str, Any], seal: Seal | None) -> dict[str, Any]:
    rest: dict[str, Any] = {"details": record["details"], "outcome": record["outcome"]}
    if record["execution_id"]:
        rest["execution_id"] = record["execution_id"]
    if seal:
        rest |= {"log_index": seal.index, "checkpoint": seal.checkpoint}
    return rest
