"""Patterns of topic names, matched in time that is bounded by the lengths of pattern and name.

A client that watches the topics of a namespace gives a regular expression of RE2 or Java, and relies on the
service to match names with it. Python's `re` may take exponential time for that, while every other client
waits. So a pattern may have only what such patterns usually consist of: literals, ``.``, classes of
characters, each optionally with ``*``, ``+`` or ``?``, and alternatives in groups that are not repeated.
Anything else is refused; a client then lists the names itself, and compares them with its own library.
"""

from collections.abc import Callable
from dataclasses import dataclass

MAX_PATTERN = 256  # characters
_MAX_ALTERNATIVES = 64  # after groups are multiplied out
_CLASSES: dict[str, Callable[[str], bool]] = {
    "d": lambda c: c in "0123456789",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in " \t\n\r\f\v",
}
_REPEATED = {"*": (0, True), "+": (1, True), "?": (0, False)}
_REPETITIONS = (*_REPEATED, "{")
_SPECIAL = "\\^$.|?*+()[]{}"


class UnsupportedPattern(ValueError):  # noqa: N818 - says what
    """The pattern is malformed, or has something that is not offered; the message says what."""


@dataclass(frozen=True, slots=True)
class _Atom:
    """Characters that ``accepts``, at least ``minimum`` of them, one at most unless it is ``repeated``."""

    accepts: Callable[[str], bool]
    minimum: int = 1
    repeated: bool = False


_Sequence = tuple[_Atom, ...]


class TopicPattern:
    """A regular expression over whole names. Raises UnsupportedPattern."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN:
            raise UnsupportedPattern(f"a pattern has at most {MAX_PATTERN} characters")
        whole = text.removeprefix("^")
        parser = _Parser(whole if whole.endswith("\\$") else whole.removesuffix("$"))
        self._places = _Places(parser.alternatives())
        parser.expect_end()

    def matches(self, name: str) -> bool:
        return self._places.match(name)


class _Places:
    """All places in all alternatives at which a name may be, as the bits of one number: what a character
    changes takes some operations on numbers of a thousand bytes at most, for the longest pattern. A place is
    before an atom, or at the end of an alternative."""

    def __init__(self, alternatives: list[_Sequence]) -> None:
        self._atoms: list[tuple[int, _Atom]] = []
        self._ends = self._optional = self._repeated = begin = 0
        place = 1
        for sequence in alternatives:
            begin |= place
            for atom in sequence:
                self._atoms.append((place, atom))
                self._optional |= 0 if atom.minimum else place
                self._repeated |= place if atom.repeated else 0
                place <<= 1
            self._ends |= place
            place <<= 1
        self._begin = self._skipping(begin)
        self._accepting: dict[str, int] = {}  # by character: the places before atoms that accept it

    def match(self, name: str) -> bool:
        places = self._begin
        for character in name:
            taken = places & self._accepting_of(character)
            places = self._skipping(taken << 1 | taken & self._repeated)
            if not places:
                return False
        return bool(places & self._ends)

    def _accepting_of(self, character: str) -> int:
        found = self._accepting.get(character)
        if found is None:  # names of topics have some forty different ones
            found = sum(place for place, atom in self._atoms if atom.accepts(character))
            self._accepting[character] = found
        return found

    def _skipping(self, places: int) -> int:
        """These places, and those behind atoms that may be absent. In each row of such atoms the addition
        carries from the first of the places on, up to the place behind the row."""
        return places | (self._optional + (places & self._optional)) ^ self._optional


class _Parser:
    """A recursive descent over one pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def alternatives(self) -> list[_Sequence]:
        """The alternatives up to the end of the pattern, or of the group."""
        found = self._sequences()
        while self._peek() == "|":
            self._at += 1
            found += self._sequences()
            _check_count(found)
        return found

    def expect_end(self) -> None:
        if self._at < len(self._text):
            raise UnsupportedPattern(f"{self._text[self._at]!r} at {self._at} is not expected")

    def _sequences(self) -> list[_Sequence]:
        """One alternative, with the groups in it multiplied out."""
        found: list[_Sequence] = [()]
        while (character := self._peek()) not in ("", "|", ")"):
            if character == "(":
                group = self._group()
                found = [(*before, *inner) for before in found for inner in group]
                _check_count(found)
            else:
                atom = self._repeated(self._atom())
                found = [(*before, atom) for before in found]
        return found

    def _group(self) -> list[_Sequence]:
        self._at += 1
        if self._text.startswith("?", self._at):
            if not self._text.startswith("?:", self._at):
                raise UnsupportedPattern("a group with (? is not offered, but (?: is")
            self._at += 2
        found = self.alternatives()
        if self._peek() != ")":
            raise UnsupportedPattern("a group is not closed")
        self._at += 1
        if self._peek() in _REPETITIONS:
            raise UnsupportedPattern("a group that is repeated is not offered")
        return found

    def _atom(self) -> Callable[[str], bool]:
        character = self._next()
        if character == ".":
            return lambda c: c != "\n"
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escaped()
        if character in _SPECIAL:
            raise UnsupportedPattern(f"{character!r} at {self._at - 1} is not offered")
        return _literal(character)

    def _repeated(self, accepts: Callable[[str], bool]) -> _Atom:
        suffix = self._peek()
        if suffix == "{":
            raise UnsupportedPattern("a count of repetitions is not offered")
        if suffix not in _REPEATED:
            return _Atom(accepts)
        self._at += 1
        if self._peek() in _REPETITIONS:
            raise UnsupportedPattern("a repetition of a repetition is not offered")
        minimum, repeated = _REPEATED[suffix]
        return _Atom(accepts, minimum, repeated)

    def _escaped(self) -> Callable[[str], bool]:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character.lower() in _CLASSES:
            among = _CLASSES[character.lower()]
            return lambda c: not among(c)
        if character.isalnum():
            raise UnsupportedPattern(f"the escape \\{character} is not offered")
        return _literal(character)

    def _class(self) -> Callable[[str], bool]:
        negated = self._peek() == "^"
        self._at += negated
        members: list[Callable[[str], bool]] = []
        while self._peek() != "]" or not members:
            members.append(self._member())
        self._at += 1
        return lambda c: any(accepts(c) for accepts in members) is not negated

    def _member(self) -> Callable[[str], bool]:
        character = self._next()
        if character in "[&" and self._peek() in (":", "&"):
            raise UnsupportedPattern("a class of characters in another one is not offered")
        if character == "\\":
            return self._escaped()
        rest = self._text[self._at : self._at + 2]
        if len(rest) == 2 and rest[0] == "-" and rest[1] not in "]\\":
            self._at += 2
            if rest[1] < character:
                raise UnsupportedPattern(f"the range {character}-{rest[1]} is empty")
            return lambda c, low=character, high=rest[1]: low <= c <= high  # type: ignore[misc]
        return _literal(character)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise UnsupportedPattern("the pattern ends too early")
        self._at += 1
        return character


def _literal(character: str) -> Callable[[str], bool]:
    return lambda c: c == character


def _check_count(found: list[_Sequence]) -> None:
    if len(found) > _MAX_ALTERNATIVES:
        raise UnsupportedPattern(f"a pattern has at most {_MAX_ALTERNATIVES} alternatives")
