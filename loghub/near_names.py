"""What may have been meant by a name that does not exist. Pure."""

import difflib
from collections.abc import Iterable


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """``; did you mean NAME?``, to be put behind a message; "" if nothing known is near."""
    spelled = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]}?" if near else ""
