"""``python -m loghub.service.fsck DIR``: what is wrong with a data folder of the service, and its repair.

Without an option that repairs, nothing is written. Exit status: 0 if nothing prevents the service from
starting; 1 if something does; 2 for an invalid command line, a DIR that is not a data folder, or a repair
that is not possible; 3 if a service uses the folder, or it cannot be read or written.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from loghub.service import datadir
from loghub.service.diagnosis import LOSSES, Finding
from loghub.service.faults import ServiceFault
from loghub.service.fsck import folder, repair, report
from loghub.service.fsck.adoption import CannotRepair
from loghub.service.fsck.checks import check_records
from loghub.service.survey import Key, Survey
from loghub.wire.errors import MalformedInput

WHOLE, DAMAGED, MISUSED, UNUSABLE = 0, 1, 2, 3
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line. ``accept_loss`` names shards, or is `ALL`."""

    data: str
    as_json: bool = False
    check_data: bool = False
    accept_catalog: bool = False
    adopt: tuple[tuple[int, str | None], ...] = ()
    drop: tuple[tuple[int, int | None], ...] = ()
    accept_loss: tuple[Key, ...] | str = ()


class Fsck:
    """One run: what was found, and what was done so far."""

    def __init__(self, options: Options) -> None:
        self._options = options
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
        survey = folder.read(self._options.data)
        checked = [
            finding
            for _, log in sorted(survey.logs.items())
            for finding in (check_records(log) if self._options.check_data else ())
        ]
        return survey, [*survey.findings(), *checked]

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run fsck; returns the exit status."""
    options = parse(arguments)
    done: list[str] = []
    try:
        with datadir.unused(options.data):
            fsck = Fsck(options)
            done = fsck.repairs
            fsck.run()
    except (folder.NoDataFolder, CannotRepair, MalformedInput) as error:
        return _complain(error, done, MISUSED)
    except (ServiceFault, OSError, apsw.Error) as error:
        return _complain(error, done, UNUSABLE)
    if options.as_json:
        document = report.as_json(options.data, fsck.findings, fsck.repairs)
        print(json.dumps(document, indent=2))  # noqa: T201 - the program's output
    else:
        print(report.as_text(options.data, fsck.findings, fsck.repairs))  # noqa: T201 - the program's output
    return DAMAGED if any(finding.prevents_start for finding in fsck.findings) else WHOLE


def _complain(error: Exception, done: Sequence[str], status: int) -> int:
    for words in (*done, f"loghub fsck: {error}"):
        print(words, file=sys.stderr)  # noqa: T201 - the program's output
    return status


def parse(arguments: Sequence[str] | None) -> Options:
    """Parse the command line; if it is invalid, print the usage and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="loghub fsck",
        description="List what is wrong with a data folder of the embedded service, and repair it on request."
        " Without an option that repairs, nothing is written.",
        epilog="Exit status: 0 nothing prevents the service from starting; 1 something does; 2 invalid"
        " command line, or a repair that is not possible; 3 a service uses the folder, or it cannot be read.",
        allow_abbrev=False,
    )
    parser.add_argument("data", metavar="DIR", help="data folder of the service, which must not run")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--check-data", action="store_true", help="read all records, also those that a start does not read"
    )
    repairs = parser.add_argument_group("repairs")
    repairs.add_argument(
        "--accept-catalog",
        action="store_true",
        help="take metadata.sqlite as it is, or an empty one, for the catalog of this folder",
    )
    repairs.add_argument(
        "--adopt", action="append", default=[], type=_adopted, metavar="LOGSTORE[=PROJECT/NAME]",
        help="take log data that the catalog does not know into it, under its old name or another one",
    )  # fmt: skip
    repairs.add_argument(
        "--drop", action="append", default=[], type=_dropped, metavar="LOGSTORE[/SHARD]",
        help="remove log data that the catalog does not know",
    )  # fmt: skip
    repairs.add_argument(
        "--accept-loss", action="append", default=[], type=_shard, metavar="LOGSTORE/SHARD|all",
        help="go on without the log groups of a shard that are lost, and above all cursors given out",
    )  # fmt: skip
    parsed = parser.parse_args(arguments)
    return Options(
        data=os.path.abspath(parsed.data),
        as_json=parsed.output == "json",
        check_data=parsed.check_data,
        accept_catalog=parsed.accept_catalog,
        adopt=tuple(parsed.adopt),
        drop=tuple(parsed.drop),
        accept_loss=ALL if ALL in parsed.accept_loss else tuple(parsed.accept_loss),
    )


def _adopted(text: str) -> tuple[int, str | None]:
    number, equals, name = text.partition("=")
    if not number.isdigit() or (equals and "/" not in name):
        raise argparse.ArgumentTypeError(f"{text!r} is not LOGSTORE or LOGSTORE=PROJECT/NAME")
    return int(number), name or None


def _dropped(text: str) -> tuple[int, int | None]:
    logstore, slash, shard = text.partition("/")
    if not logstore.isdigit() or (slash and not shard.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not LOGSTORE or LOGSTORE/SHARD")
    return int(logstore), int(shard) if slash else None


def _shard(text: str) -> Key | str:
    if text == ALL:
        return ALL
    logstore, _, shard = text.partition("/")
    if not logstore.isdigit() or not shard.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not LOGSTORE/SHARD or {ALL}")
    return int(logstore), int(shard)


if __name__ == "__main__":
    sys.exit(main())
