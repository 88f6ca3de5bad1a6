"""The one line at the end: how many were contained, how, and how many bite without a sandbox."""


class Tally:
    """What the tests of this directory have counted."""

    def __init__(self) -> None:
        self.contained = self.suffered = self.unsolved = 0
        self.bit: int | None = None
        self.mode = "unknown"

    def line(self) -> str:
        if not self.suffered:
            return ""
        text = f"attacks: {self.contained} contained of {self.suffered}, mode {self.mode}"
        text += f", {self.unsolved} unsolved" if self.unsolved else ""
        return text if self.bit is None else f"{text}, control {self.bit} bit"


TALLY = Tally()
