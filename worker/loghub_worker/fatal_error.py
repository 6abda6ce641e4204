"""The error that ends a worker."""


class FatalError(Exception):
    """An error that retries do not resolve. ``str()`` is ``Reason: message``, as in the termination log."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
