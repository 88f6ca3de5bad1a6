class AuditFlaw(ValueError):
    """An invalid value that a user gave; the text is for the user, and says what is valid."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field
