"""Commands that change a group: ``pause``, ``resume``, ``restart`` and ``reset``. With ``--dry-run`` the API
server checks the change and nothing is carried out."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from loghub.clock import SystemClock
from loghub_cli.commands import Command
from loghub_cli.group_view import Document, status_of
from loghub_cli.options import POSITION, SHARD, Show, confirm, confirmed, formatted
from loghub_cli.output import Failed
from loghub_cli.plugin.arguments import group_argument, in_cluster
from loghub_cli.plugin.kubectl import GROUPS, Kubectl, KubectlError
from loghub_cli.plugin.reset_preview import CursorsOfShard, Target, ends_of, preview, unknown_shards
from loghub_cli.plugin.worker_pods import CONTAINER, is_ready, selector

_dry_run = click.option("--dry-run", is_flag=True, help="Let the API server check it, and change nothing.")
_BY_THE_SERVER = "--dry-run=server"


def _patch(kubectl: Kubectl, name: str, spec: Mapping[str, object], *, dry_run: bool) -> Document:
    """The object as it is, or would be, then."""
    patch = json.dumps({"spec": spec})
    flags = (_BY_THE_SERVER,) if dry_run else ()
    return kubectl.object("patch", GROUPS, name, "--type=merge", f"--patch={patch}", *flags)


def _suspend(kubectl: Kubectl, name: str, show: Show, *, value: bool, dry_run: bool) -> None:
    was = bool(kubectl.group(name)["spec"].get("suspend"))
    after = _patch(kubectl, name, {"suspend": value}, dry_run=dry_run)
    show(
        {
            "name": name,
            "suspend": bool(after["spec"].get("suspend")),
            "before": was,
            "changed": not dry_run and was is not value,
        }
    )


@click.command(cls=Command)
@group_argument
@_dry_run
@formatted
@in_cluster
def pause(name: str, dry_run: bool, show: Show, kubectl: Kubectl) -> None:
    """Stop all workers of a group: each finishes its batch and leaves. Checkpoints stay as they are."""
    _suspend(kubectl, name, show, value=True, dry_run=dry_run)


@click.command(cls=Command)
@group_argument
@_dry_run
@formatted
@in_cluster
def resume(name: str, dry_run: bool, show: Show, kubectl: Kubectl) -> None:
    """Start the workers of a paused group again, from its checkpoints."""
    _suspend(kubectl, name, show, value=False, dry_run=dry_run)


@click.command(cls=Command)
@group_argument
@_dry_run
@formatted
@in_cluster
def restart(name: str, dry_run: bool, show: Show, kubectl: Kubectl) -> None:
    """Replace the workers of a group one at a time, the highest first, as a rollout does."""
    document = kubectl.group(name)
    workers = status_of(document).get("replicas", 0)
    if not workers:
        raise Failed(f"kubectl loghub: no worker of {name} runs, so there is none to replace")
    at = datetime.fromtimestamp(SystemClock().unix_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # As `kubectl rollout restart` does, which has no dry run by the server.
    template = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": at}}}
    patch = json.dumps({"spec": {"template": template}})
    flags = (_BY_THE_SERVER,) if dry_run else ()
    kubectl.object("patch", "statefulsets.apps", name, "--type=strategic", f"--patch={patch}", *flags)
    show({"name": name, "workers": workers, "restartedAt": at, "changed": not dry_run})


@click.command(cls=Command)
@group_argument
@click.option("--to", "position", type=POSITION,
              help="begin, end, or the time from which logs were received.")  # fmt: skip
@click.option("--config-map", metavar="NAME", help="The checkpoints that an earlier reset has kept.")
@click.option("--undo", is_flag=True, help="The checkpoints from before the last reset.")
@click.option("--shard", "shards", type=SHARD, multiple=True, help="Only this shard; repeatable.")
@click.option(
    "--dry-run", is_flag=True, help="Show which logs come again and which are skipped, and change nothing."
)
@confirmed
@formatted
@in_cluster
def reset(name: str, show: Show, kubectl: Kubectl, **values: Any) -> None:
    """Move the checkpoints of a group, and show before which logs come again and which are skipped.

    The operator stops the workers, keeps the old checkpoints in a ConfigMap, commits the new ones and starts
    the workers again. For exact numbers, a ready worker reads the cursors of the log service."""
    document = kubectl.group(name)
    target = _target(kubectl, document, values)
    if unknown := unknown_shards(document, target):
        raise click.UsageError(f"{name} has no shard {unknown[0]}")
    nonce = datetime.fromtimestamp(SystemClock().unix_s(), UTC).strftime("by-hand-%Y%m%dt%H%M%Sz")
    request = {"resetCheckpoints": target.request(nonce)}
    _patch(kubectl, name, request, dry_run=True)  # refused before anybody is asked
    ends, unasked = _ends(kubectl, document, target)
    if unasked:
        click.echo(f"kubectl loghub: no exact numbers: {unasked}", err=True)
    seen = preview(document, target, ends)
    if values["dry_run"]:
        show(seen)
        return
    show(seen)
    confirm(lambda: f"Reset the checkpoints of {name} to {target.words}?", yes=values["yes"])
    _patch(kubectl, name, request, dry_run=False)
    click.echo(
        f"kubectl loghub: requested as {nonce}; follow it with: kubectl loghub status {name} --watch",
        err=True,
    )


def _target(kubectl: Kubectl, document: Document, values: Mapping[str, Any]) -> Target:
    position, config_map, undo = values["position"], values["config_map"], values["undo"]
    if (position is not None) + (config_map is not None) + bool(undo) != 1:
        raise click.UsageError("give one of --to, --config-map and --undo")
    shards: tuple[int, ...] = values["shards"]
    if position is not None:
        if position in ("begin", "end"):
            return Target(to="Begin" if position == "begin" else "End", shards=shards)
        return Target(to="Timestamp", unix_s=position, shards=shards)
    if undo:
        config_map = (status_of(document).get("checkpointReset") or {}).get("backupConfigMap")
        if config_map is None:
            raise Failed("kubectl loghub: there is no reset to undo: the status names no backup")
    data = kubectl.object("get", "configmaps", config_map).get("data") or {}
    cursors = {int(shard): str(cursor) for shard, cursor in data.items() if str(shard).isdecimal()}
    return Target(to="ConfigMap", config_map=config_map, cursors=cursors, shards=shards)


def _ends(
    kubectl: Kubectl, document: Document, target: Target
) -> tuple[dict[int, CursorsOfShard] | None, str]:
    """What the log service has, by a worker; None, and why, if no worker can be asked."""
    try:
        pods = kubectl.items("pods", f"--selector={selector(document)}")
        worker = next((pod["metadata"]["name"] for pod in pods if is_ready(pod)), None)
        if worker is None:
            return None, "no worker is ready, which could ask the log service"
        command = ("python", "-m", "loghub_worker.positions", target.position, *map(str, target.shards))
        answer = kubectl.text("exec", worker, f"--container={CONTAINER}", "--", *command)
        return ends_of(json.loads(answer)), ""
    except (KubectlError, ValueError) as error:
        return None, getattr(error, "message", str(error)).removeprefix("kubectl loghub: ")
