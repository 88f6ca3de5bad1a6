"""The mutating views of `audit`, as the API serves them: with `Idempotency-Key`."""

from typing import Any

from tools.api.audit.audit import AlertAcknowledgement, Erasures
from tools.api.common.idempotency import KeyedView, Keying


class KeyedErasures(KeyedView, Erasures):
    keying = Keying.IN_PROGRESS  # batch by batch, and its key's file is gone at once

    def check_replay(self, **place: Any) -> None:
        self.organization()


class KeyedAcknowledgement(KeyedView, AlertAcknowledgement):
    def check_replay(self, **place: Any) -> None:
        self.organization()
