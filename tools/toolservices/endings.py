"""Exceptions for calls of a tool service that fail. Each class says what is known."""


class NotAnswered(Exception):
    """The base of these exceptions. The text is for the caller."""


class NotBegun(NotAnswered):
    """Certain: no process took the request, and none will."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolServiceCallFailed(NotAnswered):
    """The service reported an error, or an invalid answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolServiceCallLost(NotAnswered):
    """A process took the request, and its progress is unknown."""


class TimedOut(NotAnswered):
    """A process took the request and did not finish."""


class ToolServiceCallCancelled(NotAnswered):
    def __init__(self, *, begun: bool) -> None:
        super().__init__("The call was cancelled.")
        self.begun = begun
