"""Delimiters around text that a model is to treat as data."""

import re
from dataclasses import dataclass
from typing import Any

from tools.agents.call_rows import MOST_OBSERVATION

# Characters that a model reads and a person does not see: controls, directions, invisible letters
# and tags. The two joiners of letters are kept: scripts need them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True, slots=True)
class DataDelimiters:
    """The marks of one run."""

    secret: str

    @property
    def begin(self) -> str:
        return f"<data {self.secret}>"

    @property
    def end(self) -> str:
        return f"</data {self.secret}>"

    def around(self, text: str, most: int = MOST_OBSERVATION) -> str:
        clean = self.clean(text)
        if len(clean) > most:
            clean = f"{clean[:most]}\n[cut: {len(clean) - most} or more characters are left out]"
        return f"{self.begin}\n{clean}\n{self.end}"

    def clean(self, text: str) -> str:
        """Removes copied delimiters and invisible characters."""
        seen = _INVISIBLE.sub("\ufffd", text)
        return re.sub(re.escape(self.secret), "[mark]", seen, flags=re.IGNORECASE)

    def unmarked(self, value: Any) -> Any:
        """The same for any JSON: a model's output never carries the delimiters out of the run."""
        if isinstance(value, str):
            return re.sub(re.escape(self.secret), "[mark]", value, flags=re.IGNORECASE)
        if isinstance(value, list):
            return [self.unmarked(one) for one in value]
        if isinstance(value, dict):
            return {self.unmarked(name): self.unmarked(one) for name, one in value.items()}
        return value
