"""Casts of texts."""


class CastError(Exception):
    """The value of a row cannot be cast; the text is the message of Spark's own error."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row
