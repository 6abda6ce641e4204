"""``python -m loghub.service.fsck DIR``: what is wrong with a data folder of the service, and its repair.

Without an option that repairs, nothing is written. Exit status: 0 if nothing prevents the service from
starting; 1 if something does; 2 for an invalid command line, a DIR that is not a data folder, or a repair
that is not possible; 3 if a service uses the folder, or it cannot be read or written.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import click
import yaml

from loghub.clock import SystemClock
from loghub.progress_line import ProgressLine
from loghub.service import datadir
from loghub.service.diagnosis import LOSSES, Finding
from loghub.service.faults import ServiceFault
from loghub.service.fsck import folder, repair, report
from loghub.service.fsck.adoption import CannotRepair
from loghub.service.fsck.checks import check_records
from loghub.service.fsck.progress import Progress
from loghub.service.survey import Key, Survey
from loghub.wire.errors import MalformedInput

WHOLE, DAMAGED, MISUSED, UNUSABLE = 0, 1, 2, 3
ALL = "all"
TABLE, JSON, YAML = "table", "json", "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. ``accept_loss`` names shards, or is `ALL`."""

    data: str
    output: str = TABLE
    check_data: bool = False
    accept_catalog: bool = False
    adopt: tuple[tuple[int, str | None], ...] = ()
    drop: tuple[tuple[int, int | None], ...] = ()
    accept_loss: tuple[Key, ...] | str = ()


class Fsck:
    """One run: what was found, and what was done so far."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self.repairs: list[str] = []
        self.survey, self.findings = self._read()

    def run(self) -> None:
        """Carry out the repairs in an order in which each may depend on those before, and read again."""
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


class _Type(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """The base of the types below."""


class Adopted(_Type):
    """``LOGSTORE`` or ``LOGSTORE=PROJECT/NAME``; the value is the number, and the name or None."""

    name = "adopted"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str | None]:
        number, equals, name = str(value).partition("=")
        if not number.isdigit() or (equals and "/" not in name):
            self.fail(f"{value!r} is not LOGSTORE or LOGSTORE=PROJECT/NAME", param, ctx)
        return int(number), name or None


class Dropped(_Type):
    """``LOGSTORE`` or ``LOGSTORE/SHARD``; the value is the numbers, without a shard None."""

    name = "dropped"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int | None]:
        logstore, slash, shard = str(value).partition("/")
        if not logstore.isdigit() or (slash and not shard.isdigit()):
            self.fail(f"{value!r} is not LOGSTORE or LOGSTORE/SHARD", param, ctx)
        return int(logstore), int(shard) if slash else None


class OneOrAll(_Type):
    """``LOGSTORE/SHARD`` or `ALL`; the value is the numbers, or `ALL`."""

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
def command(progress: Progress, /, data: str, accept_loss: tuple[Key | str, ...], **values: Any) -> int:
    """List what is wrong with a data folder of the embedded service, which must not run, and repair it on
    request. Without an option that repairs, nothing is written."""
    shards = tuple(shard for shard in accept_loss if not isinstance(shard, str))
    return run(
        Options(
            data=os.path.abspath(data),
            accept_loss=shards if len(shards) == len(accept_loss) else ALL,
            **values,
        ),
        progress,
    )


def run(options: Options, progress: Progress) -> int:
    """Examine and repair the folder, and print the result; returns the exit status."""
    done: list[str] = []
    try:
        with datadir.unused(options.data):
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
        click.echo(report.as_text(options.data, fsck.findings, fsck.repairs))
    else:
        document = report.as_json(options.data, fsck.findings, fsck.repairs)
        click.echo(
            json.dumps(document, indent=2)
            if options.output == JSON
            else yaml.safe_dump(document, sort_keys=False, width=1 << 16).rstrip("\n")
        )
    return DAMAGED if any(finding.prevents_start for finding in fsck.findings) else WHOLE


def main(arguments: Sequence[str] | None = None, *, progress: Progress | None = None) -> int:
    """Run fsck; returns the exit status. Raises SystemExit for an invalid command line."""
    try:
        status = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="loghub fsck",
            standalone_mode=False,
            obj=progress or Progress(ProgressLine(SystemClock())),
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
