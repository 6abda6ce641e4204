"""``python -m loghub_service.fsck DIR``: what is wrong with a data folder of the service, and its repair.

Without an option that repairs, nothing is written. Exit status: 0 if nothing prevents the service from
starting; 1 if something does; 2 for an invalid command line, a DIR that is not a data folder, or a repair
that is not possible; 3 if a service uses the folder, or it cannot be read or written.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import apsw
import click
import yaml

from loghub.clock import SystemClock
from loghub.progress_line import ProgressLine
from loghub.wire.errors import MalformedInput
from loghub_service import server
from loghub_service.diagnosis import LOSSES, Finding, FindingKind
from loghub_service.errors import ServiceFault
from loghub_service.fsck import folder, repair
from loghub_service.fsck.adoption import CannotRepair
from loghub_service.fsck.folder import FsckProgress
from loghub_service.fsck.salvage import check_records
from loghub_service.start import Key, Survey

_CATALOG = {
    FindingKind.CATALOG_MISSING,
    FindingKind.CATALOG_OLDER,
    FindingKind.CATALOG_OF_ANOTHER_FOLDER,
    FindingKind.WRITE_AHEAD_LOG_MISSING,
}


def remedy(finding: Finding) -> str:
    """The advice for a finding; "" if nothing has to be done."""
    if finding.kind in _CATALOG:
        return (
            "restore metadata.sqlite and metadata.sqlite-wal as they belong to these logs;"
            " or take the catalog as it is: --accept-catalog"
        )
    if finding.kind is FindingKind.CATALOG_UNUSABLE:
        return "restore metadata.sqlite; or move it out of the folder, then --accept-catalog and --adopt"
    if finding.kind is FindingKind.FOLDER_STATE_DAMAGED:
        return "restore the file; or take metadata.sqlite as the catalog of these logs: --accept-catalog"
    if finding.kind is FindingKind.UNKNOWN_LOGS:
        number = finding.logstore
        return (
            f"restore the catalog that knows it; or adopt the logstore: --adopt {number}[=PROJECT/LOGSTORE];"
            f" or remove its log data: --drop {number}"
        )
    if finding.kind is FindingKind.OVERLAP:
        return "log data of two times is mixed: restore the whole folder of the shard"
    if finding.kind in LOSSES:
        return (
            "restore the file; or go on without these log groups:"
            f" --accept-loss {finding.logstore}/{finding.shard}"
        )
    return ""


def as_json(data: str, findings: list[Finding], repairs: list[str]) -> dict[str, Any]:
    return {
        "data": data,
        "starts": not any(finding.prevents_start for finding in findings),
        "repairs": repairs,
        "findings": [
            {
                **asdict(finding),
                "kind": finding.kind.value,
                "prevents_start": finding.prevents_start,
                "remedy": remedy(finding),
            }
            for finding in findings
        ],
    }


def as_text(data: str, findings: list[Finding], repairs: list[str]) -> str:
    lines = [f"{data}: {words}" for words in repairs]
    for finding in findings:
        lines.append(finding.text)
        if finding.begin_cursor is not None:
            lines.append(f"  lost: {_lost(finding)}")
        if todo := remedy(finding):
            lines.append(f"  to do: {todo}")
    problems = sum(finding.prevents_start for finding in findings)
    if problems:
        lines.append(f"{data}: {problems} {'problem' if problems == 1 else 'problems'}, see above")
    else:
        lines.append(f"{data}: nothing is wrong")
    return "\n".join(lines)


def _lost(finding: Finding) -> str:
    if finding.end_cursor is None:
        return f"from cursor {finding.begin_cursor} to the end, which is not known"
    count = finding.end_cursor - (finding.begin_cursor or 0)
    return f"the cursors [{finding.begin_cursor}, {finding.end_cursor}), at most {count} log groups"


WHOLE, DAMAGED, MISUSED, UNUSABLE = 0, 1, 2, 3
ALL = "all"
TABLE, JSON, YAML = "table", "json", "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckOptions:
    """The command line. ``accept_loss`` names shards, or is `ALL`."""

    data: str
    output: str = TABLE
    check_data: bool = False
    accept_catalog: bool = False
    adopt: tuple[tuple[int, str | None], ...] = ()
    drop: tuple[tuple[int, int | None], ...] = ()
    accept_loss: tuple[Key, ...] | str = ()


class Fsck:
    """One run, with its findings and the repairs done so far."""

    def __init__(self, options: FsckOptions, progress: FsckProgress) -> None:
        self._options = options
        self._progress = progress
        self.repairs: list[str] = []
        self.survey, self.findings = self._read()

    def run(self) -> None:
        """Carry out the repairs, each of which may depend on the ones before, and read the folder again."""
        options = self._options
        if options.accept_catalog:
            self._done(repair.accept_catalog(self.survey))
        for logstore, name in options.adopt:
            self._done(repair.adopt(self.survey, logstore, name))
        for logstore, shard in options.drop:
            self._done(repair.drop(self.survey, logstore, shard))
        for key in self._shards_with_loss():
            self._done(repair.accept(self.survey, key, self.findings))

    def _done(self, words: str) -> None:
        self.repairs.append(words)
        self.survey, self.findings = self._read()

    def _read(self) -> tuple[Survey, list[Finding]]:
        survey = folder.read(self._options.data, self._progress)
        logs = [log for _, log in sorted(survey.logs.items())] if self._options.check_data else []
        return survey, [*survey.findings(), *check_records(logs, self._progress)]

    def _shards_with_loss(self) -> list[Key]:
        chosen = self._options.accept_loss
        if not isinstance(chosen, str):
            return list(chosen)
        return sorted(
            {
                (finding.logstore, finding.shard)
                for finding in self.findings
                if finding.kind in LOSSES and finding.logstore is not None and finding.shard is not None
            }
        )


class _ArgumentType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """The base of the argument types below."""


class Adopted(_ArgumentType):
    """``LOGSTORE`` or ``LOGSTORE=PROJECT/NAME``; the value is the number, and the name or None."""

    name = "adopted"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str | None]:
        number, equals, name = str(value).partition("=")
        if not number.isdigit() or (equals and "/" not in name):
            self.fail(f"{value!r} is not LOGSTORE or LOGSTORE=PROJECT/NAME", param, ctx)
        return int(number), name or None


class Dropped(_ArgumentType):
    """``LOGSTORE`` or ``LOGSTORE/SHARD``; the value has both numbers, with None for a missing shard."""

    name = "dropped"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int | None]:
        logstore, slash, shard = str(value).partition("/")
        if not logstore.isdigit() or (slash and not shard.isdigit()):
            self.fail(f"{value!r} is not LOGSTORE or LOGSTORE/SHARD", param, ctx)
        return int(logstore), int(shard) if slash else None


class OneOrAll(_ArgumentType):
    """``LOGSTORE/SHARD`` or `ALL`; the value has both numbers, or is `ALL`."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Key | str:
        if value == ALL:
            return ALL
        logstore, _, shard = str(value).partition("/")
        if not logstore.isdigit() or not shard.isdigit():
            self.fail(f"{value!r} is not LOGSTORE/SHARD or {ALL}", param, ctx)
        return int(logstore), int(shard)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 nothing prevents the service from starting; 1 something does; 2 invalid"
    " command line, or a repair that is not possible; 3 a service uses the folder, or it cannot be read.",
)
@click.argument("data", metavar="DIR")
@click.option(
    "-o", "--output",
    type=click.Choice([TABLE, JSON, YAML]), default=TABLE, show_default=True,
    help="Output format.",
)  # fmt: skip
@click.option("--check-data", is_flag=True, help="Read all records, also those that a start does not read.")
@click.option(
    "--accept-catalog",
    is_flag=True,
    help="Repair: take metadata.sqlite as it is, or an empty one, for the catalog of this folder.",
)
@click.option(
    "--adopt", multiple=True, type=Adopted(), metavar="LOGSTORE[=PROJECT/NAME]",
    help="Repair: take log data that the catalog does not know into it, under its old name or another one.",
)  # fmt: skip
@click.option(
    "--drop", multiple=True, type=Dropped(), metavar="LOGSTORE[/SHARD]",
    help="Repair: remove log data that the catalog does not know.",
)  # fmt: skip
@click.option(
    "--accept-loss", multiple=True, type=OneOrAll(), metavar="LOGSTORE/SHARD|all",
    help="Repair: go on without the log groups of a shard that are lost, and above all cursors given out.",
)  # fmt: skip
@click.pass_obj
def command(progress: FsckProgress, /, data: str, accept_loss: tuple[Key | str, ...], **values: Any) -> int:
    """List what is wrong with a data folder of the embedded service, which must not run, and repair it on
    request. Without an option that repairs, nothing is written."""
    shards = tuple(shard for shard in accept_loss if not isinstance(shard, str))
    return run(
        FsckOptions(
            data=os.path.abspath(data),
            accept_loss=shards if len(shards) == len(accept_loss) else ALL,
            **values,
        ),
        progress,
    )


def run(options: FsckOptions, progress: FsckProgress) -> int:
    """Examine and repair the folder, and print the result; returns the exit status."""
    done: list[str] = []
    try:
        with server.unused(options.data):
            fsck = Fsck(options, progress)
            done = fsck.repairs
            fsck.run()
    except (folder.NoDataFolder, CannotRepair, MalformedInput) as error:
        return _complain(error, done, MISUSED)
    except (ServiceFault, OSError, apsw.Error) as error:
        return _complain(error, done, UNUSABLE)
    finally:
        progress.clear()
    if options.output == TABLE:
        click.echo(as_text(options.data, fsck.findings, fsck.repairs))
    else:
        document = as_json(options.data, fsck.findings, fsck.repairs)
        click.echo(
            json.dumps(document, indent=2)
            if options.output == JSON
            else yaml.safe_dump(document, sort_keys=False, width=1 << 16).rstrip("\n")
        )
    return DAMAGED if any(finding.prevents_start for finding in fsck.findings) else WHOLE


def main(arguments: Sequence[str] | None = None, *, progress: FsckProgress | None = None) -> int:
    """Run fsck; returns the exit status. Raises SystemExit for an invalid command line."""
    try:
        status = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="loghub fsck",
            standalone_mode=False,
            obj=progress or FsckProgress(ProgressLine(SystemClock())),
        )
    except click.UsageError as error:
        error.show()
        raise SystemExit(MISUSED) from None
    except click.Abort:  # Ctrl-C
        return UNUSABLE
    return status if isinstance(status, int) else WHOLE


def _complain(error: Exception, done: Sequence[str], status: int) -> int:
    for words in (*done, f"loghub fsck: {error}"):
        click.echo(words, err=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
