"""Decides which Services of projects of the embedded service are removed.

A project's Service is for everybody who uses the project, so a Service without an object is kept as long as
the project exists. One whose project does not exist is kept as long as an object names the project, which may
be created any moment. A project that is merely not known to exist keeps its Service, since a key may lack
rights in it.
"""

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectService:
    """A Service that the operator created for a project."""

    name: str
    uid: str
    project: str


def unnamed(services: Collection[ProjectService], *, named: Collection[str]) -> tuple[str, ...]:
    """The projects that have a Service and that no object names, in order."""
    return tuple(sorted({service.project for service in services if service.project not in named}))


def in_turn(projects: tuple[str, ...], *, after: str, most: int) -> tuple[str, ...]:
    """The next projects to ask for, beginning behind the last one of the round before."""
    first = bisect_right(projects, after)
    return (projects[first:] + projects[:first])[:most]


def abandoned(
    services: Collection[ProjectService], *, named: Collection[str], missing: Collection[str]
) -> tuple[ProjectService, ...]:
    """The Services to remove; the log service has answered that the ``missing`` projects do not exist."""
    return tuple(one for one in services if one.project in missing and one.project not in named)
