"""The error that ends a worker, the part of an error's text that a user needs, and the errors of the log
service that are about the content of a request."""

import re

from loghub.wire.errors import Code, LogHubError, LogHubException

MESSAGE_LINES = 4  # lines of a message that are reported; in Spark's messages only the query plan follows
MAX_LINE_CHARS = 2000  # characters of each line, which may quote a whole log
CAUSED_BY = "Caused by: "
_FRAME_OF_JAVA = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)$")
# The log service rejects the content of a request and not the request: the same logs would be rejected again.
REJECTED_CONTENT = frozenset(
    {
        Code.PARAMETER_INVALID,
        Code.POST_BODY_INVALID,
        Code.POST_BODY_TOO_LARGE,
        Code.POST_BODY_UNCOMPRESS_ERROR,
    }
)


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


def rejects_content(error: LogHubException) -> bool:
    """Whether the log service rejected the content of a request, and would reject it again."""
    return isinstance(error, LogHubError) and error.code in REJECTED_CONTENT
