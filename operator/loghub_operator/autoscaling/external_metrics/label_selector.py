"""Kubernetes label selectors, as they appear in a query; an HPA's metric selects groups with one.

The grammar is that of Kubernetes: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a`` and
``!a``, joined by commas. A missing label matches ``!=``, ``notin`` and ``!``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_LENGTH = 4096
_KEY = r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,315}[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9_.-]{0,63}"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<key>{_KEY})\s*(?:(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[A-Za-z0-9_.,\s-]*)\))?|!\s*(?P<absent>{_KEY}))\s*(?:,|$)"
)


class BadSelectorError(ValueError):
    """The text is not a label selector; the message shows where parsing failed."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: the label has one of ``values``, or exists if ``values`` is None. ``expected`` False
    negates it."""

    key: str
    values: frozenset[str] | None
    expected: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the requirement."""
        present = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return present == self.expected


def parse(text: str) -> tuple[Requirement, ...]:
    """The requirements, all of which must be met; an empty text has none. Raises `BadSelectorError`."""
    if len(text) > MAX_LENGTH:
        raise BadSelectorError(f"a label selector has at most {MAX_LENGTH} characters")
    requirements, position = [], 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise BadSelectorError(f"not a label selector: {text[position:]!r:.80}")
        requirements.append(_requirement(match))
        position = match.end()
    return tuple(requirements)


def _requirement(match: "re.Match[str]") -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], None, expected=False)
    if match["sign"]:
        return Requirement(match["key"], frozenset((match["value"],)), expected=match["sign"] != "!=")
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, expected=match["set"] == "in")
    return Requirement(match["key"], None, expected=True)
