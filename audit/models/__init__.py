"""The rows of evidence: records, logs and checkpoints, alerts, and exports."""

from audit.models.alerts import Alert, AlertChannel, AlertDelivery, AlertRule, ChannelKind
from audit.models.log import (
    AuditLeaf,
    AuditLog,
    AuditNode,
    AuditSegment,
    Checkpoint,
    CheckpointKey,
)
from audit.models.records import AuditExport, AuditKey, AuditPayload, AuditRecord, ExportState

__all__ = [
    "Alert",
    "AlertChannel",
    "AlertDelivery",
    "AlertRule",
    "AuditExport",
    "AuditKey",
    "AuditLeaf",
    "AuditLog",
    "AuditNode",
    "AuditPayload",
    "AuditRecord",
    "AuditSegment",
    "ChannelKind",
    "Checkpoint",
    "CheckpointKey",
    "ExportState",
]
