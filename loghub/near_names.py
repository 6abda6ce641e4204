"""Suggests the valid name that a misspelled name may have meant. Pure."""

import difflib
from collections.abc import Iterable


def did_you_mean(misspelled: str, valid_names: Iterable[str]) -> str:
    """``; did you mean NAME?``, to be appended to a message; "" if no valid name is near."""
    spelled = {name.lower(): name for name in valid_names}
    near = difflib.get_close_matches(misspelled.lower(), spelled, n=1)
    return f"; did you mean {spelled[near[0]]}?" if near else ""
