"""Projects: create, get, list, update, delete (docs/sls-protocol.md 2.3).

These are the actions on ``/``; the Host header names the project.
"""

from dataclasses import replace

from loghub.wire import names
from loghub.wire.errors import Code
from loghub_service.api import parse
from loghub_service.api import parse as lookup
from loghub_service.catalog import Project
from loghub_service.engine import Engine
from loghub_service.errors import failure
from loghub_service.facts import LogstoreDeleted, ProjectDeleted, ProjectSaved
from loghub_service.messages import EMPTY, Request, ServiceResponse, json_response

_PAGE = 500  # the maximum of SLS
_DESCRIPTION_MAX = 1024  # characters; a catalog of 1,000 projects stays under a few megabytes


async def create_project(engine: Engine, request: Request) -> ServiceResponse:
    """Create the project that Host names; ``projectName`` in the body is optional and must agree with it."""
    name = names.PROJECT.check(lookup.project_name(request))
    fields = parse.json_object(request)
    if parse.string(fields, "projectName", name).lower() != name:
        raise failure(Code.PARAMETER_INVALID, "projectName differs from the project in the Host header")
    description = parse.string(fields, "description", "")[:_DESCRIPTION_MAX]
    async with engine.admin:
        if name in engine.catalog.projects:
            raise failure(Code.PROJECT_ALREADY_EXIST, f"project {name} already exists")
        if len(engine.catalog.projects) >= engine.settings.limits.projects:
            raise failure(
                Code.PROJECT_QUOTA_EXCEED, f"there may be at most {engine.settings.limits.projects} projects"
            )
        now = engine.now_s()
        await engine.persist(ProjectSaved(name=name, description=description, created_s=now, modified_s=now))
    return EMPTY


async def get_project(engine: Engine, request: Request) -> ServiceResponse:
    """Get the project that Host names, or list the projects that the key sees if it names none."""
    if request.project is None:
        return _list_projects(engine, request)
    return json_response(_as_json(lookup.project(engine, request)))


async def update_project(engine: Engine, request: Request) -> ServiceResponse:
    fields = parse.json_object(request)
    async with engine.admin:
        saved = lookup.project(engine, request).saved
        description = parse.string(fields, "description", saved.description)[:_DESCRIPTION_MAX]
        await engine.persist(replace(saved, description=description, modified_s=engine.now_s()))
    return EMPTY


async def delete_project(engine: Engine, request: Request) -> ServiceResponse:
    """Delete a project with its logstores and all their logs, as the real SLS does."""
    async with engine.admin:
        project = lookup.project(engine, request)
        stores = [store.saved for store in project.logstores.values()]
        for saved in stores:
            engine.groups.forget_logstore(saved.id)
        engine.kafka_groups.forget_project(project.saved.name)
        await engine.persist_deletion(
            *(LogstoreDeleted(id=saved.id, project=saved.project, name=saved.name) for saved in stores),
            ProjectDeleted(name=project.saved.name),
        )
        for saved in stores:
            await engine.remove_logs(saved.id)
    return EMPTY


def _list_projects(engine: Engine, request: Request) -> ServiceResponse:
    offset = parse.number_query(request, "offset", minimum=0, maximum=1 << 31, default=0)
    size = parse.number_query(request, "size", minimum=0, maximum=_PAGE, default=100)
    part = request.query.get("projectName", "")
    matching = [
        project
        for name, project in sorted(engine.catalog.projects.items())
        if part in name and request.key.sees(name)
    ]
    page = [_as_json(project) for project in matching[offset : offset + size]]
    return json_response({"count": len(page), "total": len(matching), "projects": page})


def _as_json(project: Project) -> dict[str, str]:
    """Times are strings, as the Go client requires; region and owner have no meaning in this service."""
    saved = project.saved
    return {
        "projectName": saved.name,
        "description": saved.description,
        "status": "Normal",
        "region": "embedded",
        "owner": "",
        "resourceGroupId": "",
        "dataRedundancyType": "",
        "createTime": str(saved.created_s),
        "lastModifyTime": str(saved.modified_s),
    }
