"""``loghub check`` and ``loghub try``: a pipeline before it runs.

Both start the worker's program as a process of this machine, with the settings that `loghub up` and the
operator give it. `check` makes the checks of a worker's start, and `try` runs the pipeline over a sample of
logs (`loghub_cli.sample`). There is no consumer group, no checkpoint, and nothing is written to the sink.

Exit status: 0 a worker could start, and no log would be rejected; 1 otherwise; 2 the file is invalid.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from loghub.atomic_file import replace_file
from loghub.client.port import Position
from loghub.clock import SystemClock
from loghub.contract.dry_run import CHECK, OFFLINE, TRY, DryRunReport, LogSample
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.worker import (
    ENV_CREDENTIALS_DIR,
    LogSettings,
    PythonPipeline,
    WorkerConfig,
    encode_settings,
)
from loghub.extras import require
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import LogHubError
from loghub_cli.commands import Command
from loghub_cli.options import (
    DURATION,
    FOLDER,
    POSITION,
    Connect,
    Show,
    connected_if_needed,
    formatted,
)
from loghub_cli.output import Failed, InvalidInput, Record
from loghub_cli.sample import SampledLogs, last_logs, logs_of_file, logs_since
from loghub_cli.up.backend import local_placement, variables_of
from loghub_cli.up.credentials import without_keys
from loghub_cli.up.manifest import CrFile, apiserver_message
from loghub_cli.up.paths import Root, WorkerFolder, owner_only
from loghub_cli.up.runner import WORKER_COMMAND
from loghub_cli.up.worker_process import end_session, exit_message, launched, worker_variables
from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, parse_resource
from loghub_operator.api.v1alpha1 import EMBEDDED
from loghub_operator.resources.worker_config import worker_config

DONE, FAILED = 0, 1
_NOWHERE = "http://127.0.0.1"  # a worker that checks or tries contacts no log service
_MAX_LOGS = 100_000  # of --last: at 1 kB each, what the largest limit of bytes has room for
_MAX_MIB = 256  # Spark has 512 MiB by default, and holds the logs and their rows
_LOG_CHARS = 4000  # the end of the worker's log, where it has ended without a message
_STANDARD_ERROR = 2  # the descriptor: in tests `sys.stderr` is another one


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A group of the user's file, with the settings of its workers."""

    resource: LogHubConsumerGroup
    config: WorkerConfig

    @classmethod
    def read(cls, path: Path, name: str | None, *, code_dir: Path | None) -> "PipelineFile":
        """``code_dir`` has the user's modules, in place of a ConfigMap or a volume. Raises `InvalidInput`."""
        file = CrFile(path, name)
        try:
            document = file.read()
            try:
                resource = parse_resource(document)
            except InvalidResourceError as error:
                raise InvalidInput(apiserver_message(document, error)) from None
        except InvalidResourceError as error:
            raise InvalidInput(str(error)) from None
        code = file.code(resource)
        if code.error and code_dir is None:
            raise InvalidInput(
                f"{path}: {code.error}; put it into the same file, or name the folder with the code by"
                " --code-dir"
            )
        placement = local_placement(
            resource, endpoint=_NOWHERE, volumes=Root.default(os.environ).volumes, code=code
        )
        config = worker_config(resource, placement)
        if code_dir is not None and isinstance(config.pipeline, PythonPipeline | ProcessorPipeline):
            pipeline = msgspec.structs.replace(config.pipeline, folder=str(code_dir.absolute()), files={})
            config = msgspec.structs.replace(config, pipeline=pipeline)
        return cls(resource=resource, config=msgspec.structs.replace(config, log=LogSettings(level="Error")))

    @property
    def uses_spark(self) -> bool:
        return not isinstance(self.config.pipeline, ProcessorPipeline)


def run_worker(file: PipelineFile, folder: Path, arguments: Sequence[str], *, timeout_s: float) -> None:
    """Runs the worker's program in a folder of its own. What a processor prints goes to standard error.
    Raises `Failed` with the message of a worker."""
    files = WorkerFolder(folder)
    files.state.mkdir(parents=True)
    replace_file(files.config, encode_settings(file.config))
    environment = {
        **without_keys(os.environ),
        **{name: value for name, value in variables_of(file.resource).items() if value},
        **worker_variables("dry-run", files),
        ENV_CREDENTIALS_DIR: str(folder),
    }
    if file.uses_spark and sys.stderr.isatty():
        click.echo("loghub: Spark starts, which usually takes 10 to 40 s", err=True)
    with files.log.open("wb") as log:
        process = subprocess.Popen(
            launched([*WORKER_COMMAND, *arguments]),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log if file.uses_spark else _STANDARD_ERROR,
            stderr=log if file.uses_spark else _STANDARD_ERROR,
            start_new_session=True,  # so that its JVM and its processes end with it
        )
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"loghub: it takes longer than {timeout_s:.0f} s, the limit of --timeout") from None
        finally:
            end_session(process.pid)
            process.kill()
            process.wait()
    if status != DONE:
        raise Failed(f"loghub: {file.resource.metadata.name}: {_message(files, status)}")


def _message(files: WorkerFolder, status: int) -> str:
    with suppress(OSError):
        if said := files.last_words.read_text(encoding="utf-8", errors="replace").strip():
            return said
    log = files.log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARS:]
    return f"the worker ended with {exit_message(status)}" + (f":\n{log}" if log else "")


def record_of(file: PipelineFile, report: DryRunReport, *, of_lines: bool) -> dict[str, Any]:
    """The report as it is shown. ``of_lines``: the logs are lines of a file."""
    shown: dict[str, Any] = msgspec.to_builtins(report)
    if not file.uses_spark:
        for name in ("columns", "rows", "firstRows", "partitions", "morePartitions"):
            del shown[name]
    if of_lines:
        shown["rejected"] = [_of_line(one) for one in shown["rejected"]]
    return {"name": file.resource.metadata.name, **shown}


def _of_line(rejected: dict[str, Any]) -> dict[str, Any]:
    """Named by the number of the line, which is the cursor of its log group."""
    del rejected["shard"], rejected["logs"]
    return {
        "line" if name == "cursor" else name: wire_cursor.decode(value) if name == "cursor" else value
        for name, value in rejected.items()
    }


def table_of(record: dict[str, Any]) -> Record:
    """The record for people: no empty lists, values that are maps or lists as JSON, and messages on one
    line."""
    shown = {key: value for key, value in record.items() if value not in ([], 0) or key in _ALWAYS}
    for name, change in (("firstRows", _text), ("rejected", _joined)):
        if shown.get(name):
            shown[name] = [{key: change(value) for key, value in row.items()} for row in shown[name]]
    notes = shown.pop("notes", [])
    return {**shown, "notes": "; ".join(notes)} if notes else shown


_ALWAYS = frozenset({"logs", "done", "rows", "firstRows"})


def _joined(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value


def _text(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value


_YAML = "YAML file with the LogHubConsumerGroup."
_name = click.option("--name", help="Name of the LogHubConsumerGroup, if the file contains several.")
_code_dir = click.option(
    "--code-dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder with the code of the pipeline, if it is not in the file.",
)
_timeout = click.option(
    "--timeout", type=DURATION, default=600.0, show_default=True, help="Fail if it takes longer."
)


@click.command(cls=Command)
@click.option("-f", "--file", "path", type=FOLDER, required=True, help=_YAML)
@_name
@_code_dir
@_timeout
def check(path: Path, name: str | None, code_dir: Path | None, timeout: float) -> int:
    """Check a LogHubConsumerGroup as a worker does at its start: its fields, the query or the code, and
    whether the sink takes the columns. Neither the log service nor the target of the sink is contacted."""
    require("loghub-cli[local]", "loghub check")
    file = PipelineFile.read(path, name, code_dir=code_dir)
    with owner_only(), tempfile.TemporaryDirectory(prefix="loghub-check-") as folder:
        run_worker(file, Path(folder), (CHECK, OFFLINE), timeout_s=timeout)
    click.echo(f"{file.resource.metadata.name}: a worker would start with it")
    return DONE


@click.command("try", cls=Command)
@click.option("-f", "path", type=FOLDER, required=True, help=_YAML)
@_name
@click.option("--last", type=click.IntRange(1, _MAX_LOGS), metavar="N",
              help="Try the last N logs of the logstore; default: 1000.")  # fmt: skip
@click.option("--from", "begin", type=POSITION,
              help="Try the logs received since then: begin, or a time, such as 10m.")  # fmt: skip
@click.option("--file", "sample", type=FOLDER, metavar="FILE",
              help="Try the lines of a file, without a log service.")  # fmt: skip
@click.option("--lines", type=click.Choice(["plain", "json"]), default="json", show_default=True,
              help="What the lines of --file are, as for `loghub put`.")  # fmt: skip
@click.option("--limit-mib", type=click.IntRange(1, _MAX_MIB), default=64, show_default=True,
              help="Leave out what is beyond so many MiB of logs.")  # fmt: skip
@click.option("--rows", "max_rows", type=click.IntRange(0, 10_000), default=20, show_default=True,
              help="Show so many rows.")  # fmt: skip
@_code_dir
@_timeout
@connected_if_needed
@formatted
def try_(
    path: Path,
    name: str | None,
    code_dir: Path | None,
    timeout: float,
    connect: Connect,
    show: Show,
    **values: Any,
) -> int:
    """Run the pipeline of a LogHubConsumerGroup over logs, without a consumer group, a checkpoint or the
    sink: the columns, the first rows, the partitions, and the logs that would be rejected, with the reasons.
    The status is 1 if any log would be."""
    if sum(values[one] is not None for one in ("last", "begin", "sample")) > 1:
        raise click.UsageError("give one of --last, --from and --file")
    require("loghub-cli[local]", "loghub try")
    file = PipelineFile.read(path, name, code_dir=code_dir)
    sampled = _sample(file, connect, values)
    if not sampled.groups:
        raise Failed("loghub: there are no logs to try it on; `loghub check` needs none")
    if sampled.is_cut:
        click.echo(f"loghub: only {sampled.logs:,} logs fit into --limit-mib {values['limit_mib']}", err=True)
    report = _run(file, LogSample(groups=sampled.groups, max_rows=values["max_rows"]), timeout_s=timeout)
    record = record_of(file, report, of_lines=values["sample"] is not None)
    is_table = click.get_current_context().params["output"] == "table"
    show(table_of(record) if is_table else record)
    return FAILED if report.done < report.logs else DONE


def _sample(file: PipelineFile, connect: Connect, values: dict[str, Any]) -> SampledLogs:
    spec, max_bytes = file.resource.spec, values["limit_mib"] << 20
    sample: Path | None = values["sample"]
    if sample is not None:
        is_json = values["lines"] == "json"
        return logs_of_file(sample, is_json=is_json, clock=SystemClock(), max_bytes=max_bytes)
    place = connect(None if spec.endpoint == EMBEDDED else spec.endpoint, spec.project)
    begin: Position | None = values["begin"]
    with place.open() as client:
        try:
            if begin is not None:
                return logs_since(client, spec.logstore, begin, max_bytes=max_bytes)
            return last_logs(client, spec.logstore, number=values["last"] or 1000, max_bytes=max_bytes)
        except LogHubError as error:
            raise Failed(f"loghub: {error}") from None


def _run(file: PipelineFile, sample: LogSample, *, timeout_s: float) -> DryRunReport:
    with owner_only(), tempfile.TemporaryDirectory(prefix="loghub-try-") as name:
        folder = Path(name)
        logs, report = folder / "sample", folder / "report"
        logs.write_bytes(msgspec.msgpack.encode(sample))
        run_worker(file, folder, (TRY, str(logs), str(report)), timeout_s=timeout_s)
        return msgspec.json.decode(report.read_bytes(), type=DryRunReport)
