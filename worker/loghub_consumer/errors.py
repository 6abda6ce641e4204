"""The error that ends a worker, and the part of an error's text that a user needs."""

import re

MESSAGE_LINES = 4  # lines of a message that are reported; in Spark's messages only the query plan follows
MAX_LINE_CHARS = 2000  # characters of each line, which may quote a whole log
CAUSED_BY = "Caused by: "
_FRAME_OF_JAVA = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)$")


def first_lines(error: BaseException) -> str:
    """The first lines of an error, and of a Java stack trace the root cause."""
    text = text_of(error).split("JVM stacktrace:")[0].strip()
    lines = [line for line in text.splitlines() if line.strip() and not _FRAME_OF_JAVA.match(line)]
    shown, causes = lines[:MESSAGE_LINES], [line for line in lines if line.startswith(CAUSED_BY)]
    if causes and causes[-1] not in shown:
        shown[-1] = causes[-1]
    return "\n".join(line[:MAX_LINE_CHARS] for line in shown)


def text_of(error: BaseException) -> str:
    """The text of an error of user code, which may quote bytes that are not text, or have a `__str__` that
    raises."""
    try:
        text = str(error)
    except Exception as raised:  # noqa: BLE001 - user code
        text = f"its message raises {type(raised).__name__}"
    return text.encode(errors="replace").decode()  # no message can hold lone surrogates


class FatalError(Exception):
    """An error that retries do not resolve. ``str()`` is ``Reason: message``, as in the termination log."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
