"""The rules for the names of projects, logstores, consumer groups and consumers (docs/sls-protocol.md 2.5).

One rule for each kind: the service, the clients, the command line and the schema of the operator's resource
take theirs from here. What SLS documents is narrower. The rules are what the vendor's clients let through,
since the embedded service has to answer those, and what it once created is consumed by an object like any
other: a logstore of 70 characters, for example, that is a topic of Kafka clients. A name that SLS does not
take is refused by SLS. A project name is also a DNS label, see `hosts`.
"""

import re
from dataclasses import dataclass

from loghub.wire.errors import MalformedName


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """``pattern`` matches the whole name, of any length, in the syntax that Python, Rust and RE2 share;
    ``characters`` explains it to the user."""

    kind: str
    shortest: int
    longest: int
    pattern: str
    characters: str
    has_case: bool = True  # without, capitals are small letters

    @property
    def description(self) -> str:
        return f"{self.shortest} to {self.longest} {self.characters}"

    def check(self, name: str) -> str:
        """The name as it is kept. Raises MalformedName with the description of the rule."""
        if not self.allows(name):
            raise MalformedName(f"{name[:200]!r} is not a valid {self.kind} name: {self.description}")
        return self._kept(name)

    def allows(self, name: str) -> bool:
        right_length = self.shortest <= len(name) <= self.longest
        return right_length and re.fullmatch(self.pattern, self._kept(name), re.ASCII) is not None

    def _kept(self, name: str) -> str:
        return name if self.has_case or not name.isascii() else name.lower()


PROJECT = NameRule(
    kind="project",
    shortest=1,
    longest=128,
    pattern=r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?",
    characters="letters and digits, with - and _ inside",
    has_case=False,  # as in a Host; an object compares names as they are written, so it takes the small ones
)
LOGSTORE = NameRule(
    kind="logstore",
    # Java refuses names of one character and of more than 80.
    shortest=2,
    longest=80,
    pattern=r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?",
    characters="lower-case letters and digits, with - and _ inside",
)
CONSUMER_GROUP = NameRule(
    kind="consumer group",
    shortest=1,
    longest=128,
    pattern=r"[A-Za-z0-9_-]+",
    characters="letters, digits, - and _",
)
CONSUMER = NameRule(
    kind="consumer",
    # No client checks it, and users put host names, addresses and times in it; the rule refuses only
    # what would break a log line or a header.
    shortest=1,
    longest=256,
    pattern=r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?",
    characters="printable ASCII characters, no space at either end",
)
