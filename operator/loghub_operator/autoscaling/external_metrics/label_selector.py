"""Kubernetes label selectors, as they appear in a query; an HPA's metric selects groups with one.

The grammar is that of Kubernetes: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a`` and
``!a``, joined by commas. A missing label matches ``!=``, ``notin`` and ``!``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

LONGEST = 4096
_KEY = r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,315}[A-Za-z0-9])?"
_WORD = r"[A-Za-z0-9_.-]{0,63}"
_TERM = re.compile(
    rf"\s*(?:(?P<key>{_KEY})\s*(?:(?P<sign>==|=|!=)\s*(?P<value>{_WORD})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[A-Za-z0-9_.,\s-]*)\))?|!\s*(?P<absent>{_KEY}))\s*(?:,|$)"
)


class BadSelectorError(ValueError):
    """The text is not a label selector; the message shows where parsing failed."""


@dataclass(frozen=True, slots=True)
class Term:
    """One requirement: the label has one of ``values``, or exists if ``values`` is None. ``wanted`` False
    negates it."""

    key: str
    values: frozenset[str] | None
    wanted: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the requirement."""
        there = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return there == self.wanted


def parse(text: str) -> tuple[Term, ...]:
    """The requirements, all of which must be met; an empty text has none. Raises `BadSelectorError`."""
    if len(text) > LONGEST:
        raise BadSelectorError(f"a label selector has at most {LONGEST} characters")
    terms, position = [], 0
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None:
            raise BadSelectorError(f"not a label selector: {text[position:]!r:.80}")
        terms.append(_term(found))
        position = found.end()
    return tuple(terms)


def _term(found: "re.Match[str]") -> Term:
    if found["absent"]:
        return Term(found["absent"], None, wanted=False)
    if found["sign"]:
        return Term(found["key"], frozenset((found["value"],)), wanted=found["sign"] != "!=")
    if found["set"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Term(found["key"], values, wanted=found["set"] == "in")
    return Term(found["key"], None, wanted=True)
