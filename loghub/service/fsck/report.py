"""The words and the JSON in which fsck reports."""

from dataclasses import asdict
from typing import Any

from loghub.service.diagnosis import LOSSES, Finding, FindingKind

_CATALOG = {
    FindingKind.CATALOG_MISSING,
    FindingKind.CATALOG_OLDER,
    FindingKind.CATALOG_OF_ANOTHER_FOLDER,
    FindingKind.WRITE_AHEAD_LOG_MISSING,
}


def remedy(finding: Finding) -> str:
    """What to do; "" if nothing has to be done."""
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
