"""The class of an error: what kind it is, without a word of the logs.

The message of an error may quote a log. It is in the worker's own log and status; the object's status, which
others may read, has the class only: a condition of Spark such as ``CAST_INVALID_INPUT``, or the name of an
exception that ends in ``Error`` or ``Exception``. Pure.
"""

import re

LONGEST = 64
_CLASS = r"[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*"
_NAME = r"[A-Za-z_]\w*(?:Error|Exception)"
# Whose error it is may come first, as in `pipeline:transform: ValueError: ...`.
_LEADING = re.compile(rf"(?:[\w.:]+: )?(?:\[({_CLASS})\] |(?:\w+\.)*({_NAME}):)")


def error_class(message: str) -> str:
    """The class that a message begins with; "" if it begins with none."""
    found = _LEADING.match(message)
    name = (found[1] or found[2]) if found is not None else ""
    return name if len(name) <= LONGEST else ""


def is_error_class(text: str) -> bool:
    """Whether a text from elsewhere is a class and nothing else, or empty."""
    return len(text) <= LONGEST and re.fullmatch(rf"|{_CLASS}|{_NAME}", text) is not None
