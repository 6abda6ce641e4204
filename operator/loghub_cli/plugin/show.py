"""Commands that show: ``status``, ``why``, ``lag``, ``shards`` and ``plan``."""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress

import click
from rich.console import Console
from rich.text import Text

from loghub.clock import SystemClock
from loghub_cli.commands import Command
from loghub_cli.group_view import (
    ConditionFinding,
    Document,
    age,
    details,
    findings,
    name_of,
    overview,
    status_of,
)
from loghub_cli.options import Show, format_option, formatted
from loghub_cli.output import Format, Record, as_yaml, on_one_line, render, short_age, unix_s
from loghub_cli.plugin.arguments import GROUP_NAME, group_argument, in_cluster
from loghub_cli.plugin.family import family_rows
from loghub_cli.plugin.forecast import forecast
from loghub_cli.plugin.kubectl import FORBIDDEN, GROUPS, Kubectl, KubectlError
from loghub_cli.plugin.lag_trend import SAMPLES, lag_record, lag_rows, sparkline, trend
from loghub_cli.plugin.worker_pods import is_about, selector, trouble, worker_of

_CLEAR = "\x1b[H\x1b[2J"
_PIPE_WIDTH = 1000  # a program that reads the output gets every message whole
_LAST_EVENTS = 5  # more push the rest off a screen of 24 lines; `kubectl events` has all
MAX_REPLICAS = 1000  # of the CRD


def _now() -> float:
    return SystemClock().unix_s()


def _width() -> int:
    return Console().width if sys.stdout.isatty() else _PIPE_WIDTH


def _echo(text: str, *, again: bool) -> None:
    """The next look of a watch replaces the one before it on a terminal."""
    if again and sys.stdout.isatty():
        text = f"{_CLEAR}{text}"
    click.echo(text)


def _watched(kubectl: Kubectl, *arguments: str) -> Iterator[tuple[str, Document]]:
    """The events of a watch, until Ctrl-C or the end of the reader."""
    with closing(kubectl.watch(*arguments)) as events, suppress(KeyboardInterrupt):
        yield from events


@click.command(cls=Command)
@click.argument("name", type=GROUP_NAME, required=False)
@click.option("-w", "--watch", is_flag=True, help="Show it again at each change, until Ctrl-C.")
@click.option("-v", "--verbose", is_flag=True, help="Conditions, events and scaling steps, too.")
@click.option("-A", "--all-namespaces", is_flag=True, help="The groups of all namespaces.")
@format_option
@in_cluster
def status(
    name: str | None, watch: bool, verbose: bool, all_namespaces: bool, output: str, kubectl: Kubectl
) -> None:
    """Show the groups, or, with a NAME, one of them: what is wrong, its workers and its shards."""
    form = Format(output)
    if name is not None and all_namespaces:
        raise click.UsageError("a NAME is of one namespace: give -n instead of --all-namespaces")
    if name is None:
        _overview(kubectl, ("--all-namespaces",) if all_namespaces else (), form, watch=watch)
        return

    def shown(document: Document) -> str:
        if form is not Format.TABLE:
            return _as_program(document, form, watch=watch)
        return "\n".join((render([overview(document)], form), "", _one(kubectl, document, verbose=verbose)))

    if not watch:
        _echo(shown(kubectl.group(name)), again=False)
        return
    kubectl.group(name)  # a watch of what is not there waits for it
    for kind, document in _watched(kubectl, GROUPS, name):
        if kind == "DELETED":
            _echo(f"LogHubConsumerGroup {name} is deleted", again=False)
            return
        _echo(shown(document), again=True)


def _as_program(document: Document, form: Format, *, watch: bool) -> str:
    """One line or one YAML document for each look of a watch."""
    if not watch:
        return render(dict(document), form)
    return (
        json.dumps(document, ensure_ascii=False) if form is Format.JSON else f"---\n{as_yaml(dict(document))}"
    )


def _overview(kubectl: Kubectl, where: Sequence[str], form: Format, *, watch: bool) -> None:
    def shown(groups: Sequence[Document]) -> str:
        rows = [_row(one, namespaces=bool(where)) for one in groups]
        return render(rows, form) if rows or form is not Format.TABLE else "(no LogHubConsumerGroups)"

    if not watch:
        _echo(shown(kubectl.items(GROUPS, *where)), again=False)
        return
    present: dict[tuple[str, str], Document] = {}
    for kind, document in _watched(kubectl, GROUPS, *where):
        key = (document["metadata"].get("namespace", ""), name_of(document))
        if kind == "DELETED":
            present.pop(key, None)
        else:
            present[key] = document
        _echo(shown([present[one] for one in sorted(present)]), again=True)


def _row(document: Document, *, namespaces: bool) -> Record:
    wrong = next((one for one in findings(document) if not one.note), None)
    place = {"namespace": document["metadata"].get("namespace")} if namespaces else {}
    return {
        **place,
        **overview(document),
        "wrong": None if wrong is None else f"{wrong.condition} {wrong.reason}",
    }


def _one(kubectl: Kubectl, document: Document, *, verbose: bool) -> str:
    now = _now()
    pods, refused = _permitted(lambda: kubectl.items("pods", f"--selector={selector(document)}"))
    held = _held(document)
    workers = [worker_of(pod, held.get(pod["metadata"]["name"], ())) for pod in pods]
    text = details(document, workers, now_unix_s=now, width=_width(), conditions=verbose)
    parts = [text, *([f"workers: {refused}"] if refused else [])]
    if verbose:
        parts += _more(kubectl, document, now_unix_s=now)
    return "\n\n".join(parts)


def _held(document: Document) -> dict[str, list[int]]:
    """The shards of each consumer."""
    found: dict[str, list[int]] = {}
    for shard in status_of(document).get("shards") or ():
        if shard.get("consumer"):
            found.setdefault(shard["consumer"], []).append(shard["id"])
    return found


def _more(kubectl: Kubectl, document: Document, *, now_unix_s: float) -> Iterator[str]:
    steps = (status_of(document).get("scaling") or {}).get("history") or ()
    if steps:
        changes: list[Record] = [
            {
                "changed": step.get("target", "Workers"),
                "ago": age(step.get("time"), now_unix_s=now_unix_s),
                "from": step.get("from"),
                "to": step.get("to"),
                "why": step.get("reason"),
            }
            for step in steps
        ]
        yield render(changes, Format.TABLE)
    events, refused = _permitted(lambda: kubectl.items("events"))
    rows = _event_rows(events, name_of(document), now_unix_s=now_unix_s)
    if rows or refused:
        yield f"events: {refused}" if refused else render(rows, Format.TABLE)


def _permitted(read: Callable[[], list[Document]]) -> tuple[list[Document], str]:
    """What a user may not read is left out, and said."""
    try:
        return read(), ""
    except KubectlError as error:
        if error.status != FORBIDDEN:
            raise
        return [], on_one_line(error.message.removeprefix("kubectl loghub: "))


def _event_rows(events: Sequence[Document], name: str, *, now_unix_s: float) -> list[Record]:
    """The last events about the group and its pods, the latest first."""
    about = [one for one in events if is_about(one, name)]
    latest = sorted(about, key=lambda one: _event_unix_s(one) or 0.0, reverse=True)[:_LAST_EVENTS]
    return [
        {
            "ago": None if (at := _event_unix_s(one)) is None else short_age(now_unix_s - at),
            "times": (one.get("series") or {}).get("count") or one.get("count") or 1,
            "type": one.get("type"),
            "event": one.get("reason"),
            "about": (one.get("involvedObject") or {}).get("name"),
            "message": one.get("message"),
        }
        for one in latest
    ]


def _event_unix_s(event: Document) -> float | None:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((at for time in times if (at := unix_s(time)) is not None), None)


@click.command(cls=Command)
@group_argument
@format_option
@in_cluster
def why(name: str, output: str, kubectl: Kubectl) -> None:
    """Say what is wrong with a group and what to do, of its conditions, its workers' pods and warnings."""
    now, document = _now(), kubectl.group(name)
    pods, no_pods = _permitted(lambda: kubectl.items("pods", f"--selector={selector(document)}"))
    events, no_events = _permitted(lambda: kubectl.items("events", "--field-selector=type=Warning"))
    found = findings(document)
    wrong = [one for one in found if not one.note]
    record: dict[str, object] = {
        "name": name,
        "phase": status_of(document).get("phase"),
        "wrong": len(wrong),
        "findings": [_finding_record(one, now_unix_s=now) for one in found],
        "workers": [row for pod in pods if (row := trouble(pod, now_unix_s=now))],
        "warnings": _event_rows(events, name, now_unix_s=now),
        "notPermitted": [text for text in (no_pods, no_events) if text],
        "next": list(_next(name, found)),
    }
    if Format(output) is not Format.TABLE:
        click.echo(render(record, Format(output)))
        return
    click.echo("\n".join(_why_lines(record, found, width=_width(), now_unix_s=now)).lstrip("\n"))


def _finding_record(finding: ConditionFinding, *, now_unix_s: float) -> Record:
    return {
        "condition": finding.condition,
        "reason": finding.reason,
        "note": finding.note,
        "since": finding.since,
        "age": age(finding.since, now_unix_s=now_unix_s),
        "message": finding.message,
        "meaning": finding.meaning or None,
    }


def _why_lines(
    record: Record, found: Sequence[ConditionFinding], *, width: int, now_unix_s: float
) -> Iterator[str]:
    if not record["wrong"]:
        yield f"{record['name']}: nothing is wrong; phase {record['phase'] or 'unknown'}"
    for finding in found:
        since = age(finding.since, now_unix_s=now_unix_s)
        yield ""
        yield f"{'note' if finding.note else 'wrong'}: {finding.condition} {finding.reason}" + (
            f", for {since}" if since else ""
        )
        for text in (finding.message, finding.meaning):
            yield from _wrapped(on_one_line(text), width)
    for title in ("workers", "warnings"):
        rows = record[title]
        assert isinstance(rows, list)
        if rows:
            yield from ("", f"{title}:", *(f"  {line}" for line in render(rows, Format.TABLE).splitlines()))
    for title in ("notPermitted", "next"):
        texts = record[title]
        assert isinstance(texts, list)
        if texts:
            yield from ("", {"notPermitted": "not permitted:", "next": "next:"}[title])
            yield from (f"  {text}" for text in texts)


def _wrapped(text: str, width: int) -> list[str]:
    """Indented, and by the width of its characters on the terminal."""
    lines = Text(text).wrap(Console(width=width), max(width - 2, 20)) if text else ()
    return [f"  {line.plain.rstrip()}" for line in lines]


def _next(name: str, found: Sequence[ConditionFinding]) -> Iterator[str]:
    """Commands to copy."""
    kinds = {one.condition for one in found}
    if kinds & {"WorkersAvailable", "ShardFailing", "Degraded", "Stalled"}:
        yield f"kubectl loghub logs {name} --pretty"
    if any(one.condition == "Suspended" and one.reason == "Suspended" for one in found):
        yield f"kubectl loghub resume {name}"
    if "HotShard" in kinds:
        yield f"kubectl loghub shards {name} --tree"
    if any(not one.note for one in found):
        yield f"kubectl loghub report {name}"


@click.command(cls=Command)
@group_argument
@click.option(
    "-w", "--watch", is_flag=True, help="Show it again at each change, with its trend, until Ctrl-C."
)
@format_option
@in_cluster
def lag(name: str, watch: bool, output: str, kubectl: Kubectl) -> None:
    """Show how far a group is behind, the largest lag first; unknown is not zero.

    The operator writes a changed lag once a minute, unless its settings say otherwise."""
    form = Format(output)
    seen: deque[float | None] = deque(maxlen=SAMPLES)

    def shown(document: Document) -> str:
        seen.append((status_of(document).get("lag") or {}).get("seconds"))
        if form is not Format.TABLE:
            record = lag_record(document)
            return json.dumps(record) if watch and form is Format.JSON else render(record, form)
        text = f"{name}  {status_of(document).get('phase') or 'unknown'}\n{render(lag_rows(document), form)}"
        direction = trend(seen)
        return f"{text}\ntrend: {direction}  {sparkline(seen)}" if direction else text

    document = kubectl.group(name)
    if not watch:
        _echo(shown(document), again=False)
        return
    for kind, one in _watched(kubectl, GROUPS, name):
        if kind == "DELETED":
            _echo(f"LogHubConsumerGroup {name} is deleted", again=False)
            return
        _echo(shown(one), again=True)


@click.command(cls=Command)
@group_argument
@click.option("--tree", is_flag=True, help="Below each shard those that a split or merge has made of it.")
@formatted
@in_cluster
def shards(name: str, tree: bool, show: Show, kubectl: Kubectl) -> None:
    """List the shards of a group with their states, consumers and lags."""
    show(family_rows(kubectl.group(name), now_unix_s=_now(), tree=tree))


@click.command(cls=Command)
@group_argument
@click.option("--replicas", type=click.IntRange(0, MAX_REPLICAS), required=True, metavar="N",
              help="The number of workers to try.")  # fmt: skip
@formatted
@in_cluster
def plan(name: str, replicas: int, show: Show, kubectl: Kubectl) -> None:
    """Say what another number of workers would do: how many would run, which shards would move, and what they
    would consume. Nothing is changed."""
    show(forecast(kubectl.group(name), replicas))
