"""What a tool may import from us: `from toolcrib import ToolError, place`."""

places: dict[str, str] = {}


class ToolError(Exception):
    """End the run as failed with a code of the tool's own, such as NOT_FOUND.

    A code is 3 to 40 capital letters, digits and underscores; any other becomes TOOL_ERROR.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def place(target: str) -> str:
    """Where the profile's mount `target` lies; elsewhere only where there are no namespaces."""
    return places.get(target, target)
