"""Exceptions for calls of a tool service that fail. Each class says what is known."""


class NotAnswered(Exception):
    """Root of them. The text is for the caller."""


class NotBegun(NotAnswered):
    """Certain: no process took the request, and none will."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Failed(NotAnswered):
    """The service said so, or answered what cannot be passed on."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Lost(NotAnswered):
    """A process took the request, and its progress is unknown."""


class TimedOut(NotAnswered):
    """A process took it and did not come to an end."""


class Cancelled(NotAnswered):
    def __init__(self, *, begun: bool) -> None:
        super().__init__("The call was cancelled.")
        self.begun = begun
