"""Enumerations whose members explain themselves, in the class's docstring.

The docstring reads ``Introduction. FIRST: text. SECOND, THIRD: text.`` One text then serves
`kubectl explain` (through `loghub_operator.api.crd`) and ``docs/reasons.md``, so that the two
cannot differ.
"""

import inspect
import re
from enum import StrEnum

# `NAME: text`, `NAME, NAME: text` or `NAME and NAME: text`
_NAMES = re.compile(r"\b((?:[A-Z][A-Z_]+(?:, | and ))*[A-Z][A-Z_]+): ")


def explained(kind: type[StrEnum]) -> tuple[str, list[tuple[list[str], str]]]:
    """The introduction, then the text for each group of member names, in the docstring's order."""
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    introduction, *parts = _NAMES.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return introduction.strip(), [(re.split(", | and ", names), text.strip()) for names, text in pairs]


def described(kind: type[StrEnum], introduction: str = "") -> str:
    """One paragraph for a schema: the introduction, then ``Value: text`` for every value."""
    first, rows = explained(kind)
    texts = (f"{', '.join(kind[name] for name in names)}: {text}" for names, text in rows)
    return " ".join(part for part in (introduction or first, *texts) if part)
