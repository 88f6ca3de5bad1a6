"""The state of a rate limit after a call: what is left of it to the caller in this minute."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rate:
    """One admitted call. `used` counts it; `resets_in_s` is when the oldest call leaves the window.
    `counted_by` is redis or postgres, `ticket` identifies the call in Redis."""

    limit: int
    used: int
    resets_in_s: int
    counted_by: str
    ticket: bytes = field(default=b"", repr=False)

    def as_dict(self) -> dict[str, int]:
        return {"limit": self.limit, "used": self.used, "resets_in_s": self.resets_in_s}
