"""The rules for the names of projects, logstores, consumer groups and consumers (docs/sls-protocol.md 2.5).

The service, the clients and the operator's schema share these rules. A project name is also a DNS
label, see `hosts`.
"""

import re
from dataclasses import dataclass

from loghub.wire.errors import MalformedName


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """``pattern`` matches the whole name; ``description`` explains the rule to the user."""

    kind: str
    pattern: str
    description: str

    def check(self, name: str) -> str:
        """The name itself. Raises MalformedName with the description of the rule."""
        if re.fullmatch(self.pattern, name, re.ASCII) is None:
            raise MalformedName(f"{name[:200]!r} is not a valid {self.kind} name: {self.description}")
        return name

    def allows(self, name: str) -> bool:
        return re.fullmatch(self.pattern, name, re.ASCII) is not None


PROJECT = NameRule(
    kind="project",
    pattern=r"[A-Za-z0-9]([A-Za-z0-9_-]{0,126}[A-Za-z0-9])?",
    description="1 to 128 letters and digits, with - and _ inside",
)
LOGSTORE = NameRule(
    kind="logstore",
    # Java refuses names of one character and of more than 80.
    pattern=r"[a-z0-9][a-z0-9_-]{0,78}[a-z0-9]",
    description="2 to 80 lower-case letters and digits, with - and _ inside",
)
CONSUMER_GROUP = NameRule(
    kind="consumer group",
    pattern=r"[A-Za-z0-9_-]{1,128}",
    description="1 to 128 letters, digits, - and _",
)
CONSUMER = NameRule(
    kind="consumer",
    # No client checks it, and users put host names, addresses and times in it; the rule refuses only
    # what would break a log line or a header.
    pattern=r"[\x21-\x7e]([\x20-\x7e]{0,254}[\x21-\x7e])?",
    description="1 to 256 printable ASCII characters, no space at either end",
)
