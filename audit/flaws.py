class Flaw(ValueError):
    """Something a person gave that cannot be meant; the text is for them, and says what fits."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field
