"""Periodically removes the Services of projects that no object names and that do not exist any more.

Nothing else would: a Service has no owner (docs/decisions/ownership.md), and a project may be deleted long
after the last object that named it. A project's Service is for everybody who uses the project, so a Service
without an object is kept as long as the project exists, and the Service of a project that does not exist as
long as an object names the project, which may be created any moment. A project that is merely not known to
exist keeps its Service, since a key may lack rights in it.

The log service is asked with the keys of the objects that use it. While there is no such object nothing is
removed, and the number of these Services is limited
(`loghub_operator.settings.Settings.max_project_services`).
"""

import asyncio
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from loghub_operator.api.labels import OUR_SERVICES
from loghub_operator.clients.kube import SERVICE, Kube, KubeError
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.resources import project_of

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectService:
    """A Service that the operator created for a project."""

    name: str
    uid: str
    project: str


def unnamed(services: Collection[ProjectService], *, named: Collection[str]) -> tuple[str, ...]:
    """The projects that have a Service and that no object names, in order."""
    return tuple(sorted({service.project for service in services if service.project not in named}))


def in_turn(projects: tuple[str, ...], *, after: str, maximum: int) -> tuple[str, ...]:
    """The next projects to ask for, beginning behind the last one of the round before."""
    first = bisect_right(projects, after)
    return (projects[first:] + projects[:first])[:maximum]


def abandoned(
    services: Collection[ProjectService], *, named: Collection[str], missing: Collection[str]
) -> tuple[ProjectService, ...]:
    """The Services to remove; the log service has answered that the ``missing`` projects do not exist."""
    return tuple(one for one in services if one.project in missing and one.project not in named)


# The Service of a deleted project does no harm but to use an address of the cluster.
EVERY_S = 300.0
MAX_ASKED = 100  # projects in a round: each takes a client of the pool, which other groups use too


class ProjectServices:
    """The Services of projects in ``namespace``, the namespace of the embedded service at ``endpoint``."""

    def __init__(
        self,
        *,
        kube: Kube,
        log_service: LogServiceAccess,
        group_index: GroupIndex,
        namespace: str,
        endpoint: str,
    ) -> None:
        self._kube = kube
        self._log_service = log_service
        self._group_index = group_index
        self._namespace = namespace
        self._endpoint = endpoint
        self._last_asked = ""

    async def run(self, *, every_s: float = EVERY_S) -> None:
        """Runs forever; if the API server does not answer or refuses, the next round tries again."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.remove_abandoned()
            except KubeError as error:
                log.warning("Services of projects not checked", namespace=self._namespace, error=str(error))

    async def remove_abandoned(self) -> None:
        """Makes one round. Raises `KubeError`."""
        services = tuple(
            ProjectService(
                name=document["metadata"]["name"], uid=document["metadata"].get("uid", ""), project=project
            )
            for document in await self._kube.list(SERVICE, self._namespace, OUR_SERVICES)
            if (project := project_of(document)) is not None
        )
        candidates = unnamed(services, named=self._group_index.projects())
        asked = in_turn(candidates, after=self._last_asked, maximum=MAX_ASKED)
        self._last_asked = asked[-1] if asked else ""
        missing = await self._log_service.missing_projects(
            self._endpoint, asked, uids=self._group_index.uids_at(self._endpoint)
        )
        # Read again: an object may have been created meanwhile.
        for service in abandoned(services, named=self._group_index.projects(), missing=missing):
            log.info("Service of a project removed", namespace=self._namespace, project=service.project)
            await self._kube.delete(SERVICE, self._namespace, service.name, uid=service.uid)
