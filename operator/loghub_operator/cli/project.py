"""``loghub project``: create, list, show and delete projects."""

import click

from loghub.client.port import ProjectInfo
from loghub.wire.errors import Code
from loghub_operator.cli.commands import CommandGroup
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.creation import create_or_keep, if_not_exists
from loghub_operator.cli.options import (
    PROJECT,
    Show,
    confirm,
    confirmed,
    connected_without_project,
    formatted,
)
from loghub_operator.cli.output import Record, utc


@click.group(cls=CommandGroup)
def project() -> None:
    """Create, list, show and delete projects."""


@project.command()
@click.argument("name", type=PROJECT)
@click.option("--description", default="", help="Description of the project.")
@if_not_exists
@connected_without_project
@formatted
def create(name: str, description: str, keep: bool, place: Connection, show: Show) -> None:
    """Create a project."""
    with place.open(name) as client:
        show(
            create_or_keep(
                {"project": name, "description": description},
                lambda: client.create_project(description),
                lambda: _record(client.get_project()),
                exists=Code.PROJECT_ALREADY_EXIST if keep else None,
            )
        )


@project.command("list")
@connected_without_project
@formatted
def list_(place: Connection, show: Show) -> None:
    """List the projects that the access key sees."""
    with place.open_without_project() as client:
        show([_record(one) for one in client.list_projects()])


@project.command("show")
@click.argument("name", type=PROJECT)
@connected_without_project
@formatted
def show_(name: str, place: Connection, show: Show) -> None:
    """Show a project and its logstores."""
    with place.open(name) as client:
        logstores = [{"logstore": one} for one in client.list_logstores()]
        show({**_record(client.get_project()), "logstores": logstores})


@project.command()
@click.argument("name", type=PROJECT)
@confirmed
@connected_without_project
@formatted
def delete(name: str, yes: bool, place: Connection, show: Show) -> None:
    """Delete a project with its logstores, their logs and their consumer groups."""
    with place.open(name) as client:
        confirm(
            lambda: f"Delete project {name} with all its logs (logstores: {len(client.list_logstores())})?",
            yes=yes,
        )
        client.delete_project()
    show({"project": name, "deleted": True})


def _record(info: ProjectInfo) -> Record:
    return {
        "project": info.name,
        "description": info.description,
        "region": info.region,
        "created": utc(info.created_unix_s),
        "modified": utc(info.modified_unix_s),
    }
