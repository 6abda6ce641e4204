"""The part of an error's text that a user needs."""

import re

MESSAGE_LINES = 4  # of a message that are reported; the query plan that follows in Spark's does not help
CAUSED_BY = "Caused by: "
_FRAME_OF_JAVA = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)$")


def first_lines(error: BaseException) -> str:
    """The first lines of an error, and of a Java stack trace the root cause."""
    text = str(error).split("JVM stacktrace:")[0].strip()
    lines = [line for line in text.splitlines() if line.strip() and not _FRAME_OF_JAVA.match(line)]
    shown, causes = lines[:MESSAGE_LINES], [line for line in lines if line.startswith(CAUSED_BY)]
    if causes and causes[-1] not in shown:
        shown[-1] = causes[-1]
    return "\n".join(shown)
