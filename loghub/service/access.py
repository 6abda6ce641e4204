"""Access keys: who signs a request, and what that key may do.

A key has rights in some projects. Every action of the API requires one right (`loghub.service.http.routes`),
so that a consumer or a producer can have a key that deletes nothing. `loghub.service.credentials` reads the
keys.
"""

from dataclasses import dataclass
from enum import StrEnum

EVERY_PROJECT = "*"


class Right(StrEnum):
    """What a key may do in its projects. No right includes another one."""

    READ = "read"  # what a consumer does: cursors, PullLogs, and its group's settings and checkpoints
    WRITE = "write"  # PutLogs
    ADMIN = "admin"  # create, change and delete projects, logstores and shards; delete consumer groups


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """An access key with its rights; every right in every project unless they are given.

    ``security_token`` is the STS token that must accompany the key; "" if none may. The key is valid until
    ``expires_unix_s``; None: without end. `repr` shows neither the token nor the secret.
    """

    key_id: str
    secret: str
    security_token: str = ""
    expires_unix_s: float | None = None
    projects: frozenset[str] = frozenset({EVERY_PROJECT})  # in lower case
    rights: frozenset[Right] = frozenset(Right)

    def __repr__(self) -> str:
        return f"AccessKey(key_id={self.key_id!r}, secret=***)"

    def sees(self, project: str) -> bool:
        """Whether the key has its rights in this project."""
        return EVERY_PROJECT in self.projects or project in self.projects
