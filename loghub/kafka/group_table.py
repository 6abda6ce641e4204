"""The groups of all projects, and those of each one: reports of a project do not go through all others."""

from collections.abc import Iterator
from dataclasses import dataclass

from loghub.kafka.coordinator.group import Group


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group of one project: projects do not share group ids."""

    project: str
    group_id: str


class GroupTable:
    """Changed by `put` and `remove` only."""

    def __init__(self) -> None:
        self._all: dict[GroupKey, Group] = {}
        self._of: dict[str, dict[GroupKey, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._all

    def get(self, key: GroupKey) -> Group | None:
        return self._all.get(key)

    def put(self, key: GroupKey, group: Group) -> None:
        self._all[key] = group
        self._of.setdefault(key.project, {})[key] = None

    def remove(self, key: GroupKey) -> None:
        if self._all.pop(key, None) is not None:
            keys = self._of[key.project]
            del keys[key]
            if not keys:
                del self._of[key.project]

    def all_keys(self) -> list[GroupKey]:
        return list(self._all)

    def items(self) -> Iterator[tuple[GroupKey, Group]]:
        return iter(self._all.items())

    def of(self, project: str) -> Iterator[tuple[GroupKey, Group]]:
        return ((key, self._all[key]) for key in self._of.get(project, ()))
