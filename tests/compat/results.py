"""What the tests with real clients have shown, as the tables of docs/compatibility.md.

Each test of the files in `FILES` records its outcome under build/compat (`record`). ``python -m
tests.compat.results`` writes the tables between the marks of the page, and refuses to while a test that a
cell rests on has not passed. tests/house/test_compatibility.py compares the committed page with the tests
that pytest collects and with the rows here, so a cell for which there is no test cannot stay.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.compat.consumers import LANGUAGES
from tests.support import ROOT

PAGE = ROOT / "docs" / "compatibility.md"
RECORDS = ROOT / "build" / "compat"
FILES = (
    "test_producers.py",
    "test_real_clients.py",
    "test_real_clients_data.py",
    "test_sdk_admin.py",
    "test_sdk_consumer.py",
    "test_sdk_data.py",
    "test_sdk_rights.py",
)
# Section 4 of the page tells of these.
IN_WORDS = {"test_after_an_outage_longer_than_the_timeout_java_reads_only_once_it_is_started_again"}
NEVER = "never compared"
_COLLECT_GUARD_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a test shows. ``differs`` has why, by the clients for which it is not so."""

    what: str
    test: str
    differs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of the page, between the marks with its name."""

    name: str
    clients: Mapping[str, str]  # by the name of the column
    rows: tuple[Row, ...]


GROUPS = Table(
    name="consumer groups",
    clients={"Go": "go", "Java": "java", "Python": "python"},
    rows=(
        Row(
            what="three consumers share ten shards as 3, 3 and 4; one is killed, the others take over and "
            "give its share back when it returns; two more join, and each has two",
            test="test_ten_shards_move_between_consumers_that_come_and_go",
        ),
        Row(
            what="a shard comes back to its holder while that still shuts it down",
            test="test_a_shard_comes_back_while_its_holder_shuts_it_down",
        ),
        Row(
            what="consumers of all three libraries, of ours and our worker on Spark in one "
            "group, each killed, and all but the worker started again",
            test="test_all_libraries_and_ours_share_one_group",
        ),
        Row(
            what="the first consumer creates its group; one group too many is refused",
            test="test_the_library_creates_its_group_and_meets_the_limit",
        ),
        Row(
            what="of two groups one is deleted and created again, while both are consumed",
            test="test_of_two_groups_one_is_deleted_and_made_again",
        ),
        Row(
            what="timeout and order of the group change while it is consumed: children of a split wait or "
            "are read at once, and a killed consumer loses its shards after the new time",
            test="test_settings_of_the_group_change_while_it_is_consumed",
        ),
        Row(
            what="shards are split and merged while a producer writes, under a backlog and while they are "
            "read; in an ordered group a parent's logs come before those of its children",
            test="test_split_and_merge_under_load",
        ),
        Row(
            what="a read-only shard is consumed to its end, and the rest is balanced",
            test="test_split_and_merge_under_load",
        ),
        Row(
            what="the processor returns an earlier cursor; a checkpoint is set by force",
            test="test_a_returned_cursor_rolls_back_and_a_forced_checkpoint_resets",
        ),
        Row(
            what="a new group begins at the begin, the end or a time",
            test="test_a_new_group_begins_at_the_begin_the_end_or_a_time",
        ),
        Row(
            what="the requests are signed with version 4",
            test="test_requests_are_signed_with_version_4",
            differs={"java": "0.6.41 cannot sign with version 4"},
        ),
        Row(
            what="PutLogs in every way of the SDK: each compression, balanced and by key; what the service "
            "does not have (processors, bodies of JSON) is refused in words; a split, by Go into three",
            test="test_every_way_to_put_logs_arrives_or_is_refused_in_words",
        ),
        Row(
            what="the service is killed twice and starts again",
            test="test_the_service_is_killed_and_starts_again",
        ),
    ),
)
SDK = Table(
    name="calls of the Python SDK",
    clients={"Python": "python"},
    rows=(
        Row(
            what="projects are created, updated, listed and deleted",
            test="test_a_project_is_created_updated_and_deleted",
        ),
        Row(
            what="logstores are created, updated, listed and deleted",
            test="test_a_logstore_is_created_updated_and_deleted",
        ),
        Row(
            what="shards are split, merged and deleted",
            test="test_shards_are_split_merged_and_deleted",
        ),
        Row(
            what="consumer groups are created, updated, listed and deleted",
            test="test_a_consumer_group_is_created_updated_and_deleted",
        ),
        Row(what="queries are refused in words", test="test_queries_are_refused"),
        Row(
            what="GetIndex says that a logstore has no index",
            test="test_a_logstore_has_no_index",
        ),
        Row(what="PutLogs by key, and PullLogs of what it wrote", test="test_put_and_pull_by_key"),
        Row(what="a balanced PutLogs", test="test_balanced_puts_reach_several_shards"),
        Row(what="values that are no text come back as they were", test="test_values_need_not_be_text"),
        Row(what="a PutLogs that is not compressed", test="test_uncompressed_put"),
        Row(what="cursors of a place and of a time, and their times", test="test_cursors_and_their_times"),
        Row(what="PullLogs with a count and an end cursor", test="test_count_and_end_cursor_bound_a_pull"),
        Row(what="a wrong secret is refused", test="test_a_wrong_secret_is_refused"),
        Row(
            what="keys with the right to read or to write only are enough for a consumer and a producer",
            test="test_a_consumer_and_a_producer_need_no_right_to_delete",
        ),
        Row(
            what="two consumers share four shards, and one takes over",
            test="test_two_consumers_share_four_shards_and_one_takes_over",
        ),
        Row(
            what="a consumer that starts again goes on from its checkpoints",
            test="test_a_restarted_consumer_goes_on_from_its_checkpoints",
        ),
        Row(
            what="consumers go on after a restart of the service",
            test="test_consumers_continue_after_a_restart_of_the_service",
        ),
        Row(
            what="an ordered group reads children after their parent",
            test="test_an_ordered_group_reads_children_after_their_parent",
        ),
    ),
)
TABLES = (GROUPS, SDK)
_CASE = re.compile(r"::(?P<test>test_\w+)(\[(?P<parameters>.*)\])?$")


def of_client(case: str, client: str) -> bool:
    """Whether a case, such as ``..::test_x[5k-go]``, runs this client. Without one in its parameters it runs
    all of them."""
    found = _CASE.search(case)
    assert found is not None, case
    named = set((found["parameters"] or "").split("-")) & set(LANGUAGES)
    return not named or client in named


def test_of(case: str) -> str:
    found = _CASE.search(case)
    assert found is not None, case
    return found["test"]


def collected() -> list[str]:
    """The cases that cells rest on, as pytest collects them: those of `make test`, and of `make check-deep`
    those that do not repeat another one over a million logs."""
    files = [f"tests/compat/{name}" for name in FILES]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "not 1M",
    ]
    done = subprocess.run(
        [*command, *files], cwd=ROOT, capture_output=True, text=True, check=True, timeout=_COLLECT_GUARD_S
    )
    return [line for line in done.stdout.splitlines() if _CASE.search(line)]


def rendered(table: Table, cases: Iterable[str]) -> str:
    """The table if all these cases pass. Raises ValueError for a client that no case runs and no reason
    excuses."""
    lines = [
        f"| what happens | {' | '.join(table.clients)} | the real SLS | shown by |",
        f"| --- |{' --- |' * (len(table.clients) + 2)}",
    ]
    known = list(cases)
    for row in table.rows:
        cells = [_cell(row, client, known) for client in table.clients.values()]
        lines.append(f"| {row.what} | {' | '.join(cells)} | {NEVER} | `{row.test}` |")
    return "\n".join(lines)


def _cell(row: Row, client: str, cases: list[str]) -> str:
    runs = any(test_of(case) == row.test and of_client(case, client) for case in cases)
    if client in row.differs:
        if runs:
            raise ValueError(f"{row.test} runs {client}, which differs: {row.differs[client]}")
        return f"differs: {row.differs[client]}"
    if not runs:
        raise ValueError(f"no case of {row.test} runs {client}, and no reason says why")
    return "works"


def with_tables(page: str, cases: Iterable[str]) -> str:
    """The page with its tables written again."""
    known = list(cases)
    for table in TABLES:
        begin, end = f"<!-- {table.name} -->\n", f"\n<!-- end of {table.name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{rendered(table, known)}{end}{after}"
    return page


def record(case: str, outcome: str) -> None:
    """Keep the outcome of a case of these files; of one file each, since several processes run tests."""
    if case.partition("::")[0].rpartition("/")[2] not in FILES:
        return
    RECORDS.mkdir(parents=True, exist_ok=True)
    file = RECORDS / (re.sub(r"\W+", "-", case) + ".json")
    file.write_text(json.dumps({"case": case, "outcome": outcome}))


def recorded() -> dict[str, str]:
    """The last outcome of each case."""
    entries = [json.loads(file.read_text()) for file in sorted(RECORDS.glob("*.json"))]
    return {entry["case"]: entry["outcome"] for entry in entries}


def not_shown(cases: Iterable[str], outcomes: Mapping[str, str]) -> list[str]:
    """What speaks against a page that says that these cases work."""
    return [
        f"{case}: {outcomes.get(case, 'was not run')}" for case in cases if outcomes.get(case) != "passed"
    ]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Of a case's three reports the worst counts: a skip or an error outside of the call too."""
    if report.when == "call" or not report.passed:
        record(report.nodeid, report.outcome if report.when == "call" or report.skipped else "error")


def main() -> int:
    """Write the tables of the page. Returns 1 if a case has not passed, and names it."""
    cases = collected()
    missing = not_shown(cases, recorded())
    for line in missing:
        print(line, file=sys.stderr)
    if missing:
        return 1
    PAGE.write_text(with_tables(PAGE.read_text(), cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
