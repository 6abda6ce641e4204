"""``loghub check`` and ``loghub try``: which logs are taken, and what a user sees, by the worker's program.

A processor needs no Spark, so most cases have one; `tests/loghub_worker/test_dry_run.py` has every kind of
pipeline, and the deep case here the whole way of a query.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from loghub.clock import SystemClock
from loghub.wire.loggroup import Log, LogGroup, decode, encode
from loghub_cli.output import InvalidInput
from loghub_cli.sample import SampledLogs, last_logs, logs_of_file, logs_since
from tests.loghub_cli.command import STORE, Cli

pytestmark = pytest.mark.timeout(1800)
MIB = 1 << 20
SHARDS = ("0" * 32, "f" * 32)  # a hash key of each

GROUP = """
apiVersion: loghub.dev/v1alpha1
kind: LogHubConsumerGroup
metadata: {{name: {name}}}
spec:
  endpoint: embedded
  project: {project}
  logstore: access
  pipeline:
    {pipeline}
"""
PROCESSOR = "processor: {factory: 'mine:P', configMap: {name: code}}"
CODE = """
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: code}}
data:
  mine.py: |
    from loghub_consumer import Processor
    class P(Processor):
        def process(self, logs, tracker):
            print("called")
            for group in logs.groups:
                for log in group.logs:
                    {statement}
"""


def written(folder: Path, project: str, *, statement: str = 'int(log.get("n"))', name: str = "mine") -> Path:
    file = folder / "group.yaml"
    text = GROUP.format(name=name, project=project, pipeline=PROCESSOR)
    file.write_text(text + CODE.format(statement=statement))
    return file


def put(cli: Cli, key: str, *values: object) -> None:
    for value in values:
        log = Log(time=1_790_000_000, contents=(("n", str(value)),))
        cli.client.put_logs(STORE, encode(LogGroup(logs=(log, log))), hash_key=key)


def values_in(sampled: SampledLogs) -> list[tuple[int, str]]:
    """The shard and the first value of each log group."""
    firsts = [decode(one.log_group).logs[0].contents[0][1] for one in sampled.groups]
    return [
        (one.shard, value if isinstance(value, str) else value.decode())
        for one, value in zip(sampled.groups, firsts, strict=True)
    ]


def of_shards(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, str]]:
    return [(0, str(n)) for n in first] + [(1, str(n)) for n in second]


def test_the_last_logs_are_those_at_the_ends_of_all_shards(cli: Cli) -> None:
    put(cli, SHARDS[0], *range(8))
    put(cli, SHARDS[1], 9)
    taken = last_logs(cli.client, STORE, number=8, max_bytes=MIB)
    assert (taken.logs, taken.is_cut) == (8, False)
    assert values_in(taken) == of_shards((5, 6, 7), (9,))
    assert values_in(last_logs(cli.client, STORE, number=1, max_bytes=MIB)) == of_shards((7,), ())
    everything = last_logs(cli.client, STORE, number=1000, max_bytes=MIB)
    assert values_in(everything) == of_shards(range(8), (9,))
    assert [one.cursor for one in everything.groups[:8]] == list(
        range(everything.groups[0].cursor, everything.groups[0].cursor + 8)
    )
    few = last_logs(cli.client, STORE, number=1000, max_bytes=2 * len(everything.groups[0].log_group))
    assert (len(few.groups), few.is_cut) == (2, True)


def test_logs_of_a_shard_that_was_split_come_after_those_of_its_children(cli: Cli) -> None:
    put(cli, SHARDS[0], 1)
    cli("shard", "split", STORE, 0)
    put(cli, SHARDS[0], 2)
    assert [value for _, value in values_in(last_logs(cli.client, STORE, number=2, max_bytes=MIB))] == ["2"]
    assert sorted(value for _, value in values_in(last_logs(cli.client, STORE, number=4, max_bytes=MIB))) == [
        "1",
        "2",
    ]


def test_logs_since_a_time_are_those_of_all_shards(cli: Cli) -> None:
    put(cli, SHARDS[0], *range(3))
    put(cli, SHARDS[1], 9)
    taken = logs_since(cli.client, STORE, "begin", max_bytes=MIB)
    assert (values_in(taken), taken.is_cut) == (of_shards(range(3), (9,)), False)
    assert logs_since(cli.client, STORE, "end", max_bytes=MIB).groups == []
    size = len(taken.groups[0].log_group)
    cut = logs_since(cli.client, STORE, "begin", max_bytes=4 * size)  # half of it for each shard
    assert (values_in(cut), cut.is_cut) == (of_shards((0, 1), (9,)), True)


def test_each_line_of_a_file_is_a_log_group_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "sample.jsonl"
    file.write_text('{"n": "1", "__topic__": "t"}\n\n{"n": "2"}')
    clock = SystemClock()
    taken = logs_of_file(file, is_json=True, clock=clock, max_bytes=MIB)
    assert [(one.shard, one.cursor) for one in taken.groups] == [(0, 1), (0, 3)]
    assert decode(taken.groups[0].log_group).topic == "t"
    assert values_in(taken) == [(0, "1"), (0, "2")]
    file.write_text("one\n{}\n")
    assert len(logs_of_file(file, is_json=False, clock=clock, max_bytes=MIB).groups) == 2
    with pytest.raises(InvalidInput, match=r"sample\.jsonl: line 1"):
        logs_of_file(file, is_json=True, clock=clock, max_bytes=MIB)


def test_a_good_pipeline_is_checked_and_tried_on_the_logstore_without_a_group(
    cli: Cli, tmp_path: Path
) -> None:
    put(cli, SHARDS[0], 1, 2)
    file = written(tmp_path, cli.project)
    checked = cli.run("check", "-f", file)
    assert (checked.status, checked.out) == (0, "mine: a worker would start with it\n"), checked.err
    tried = cli.run("try", "-f", file)
    assert tried.status == 0, tried.err
    assert tried.out.split() == ["name:", "mine", "logs:", "4", "done:", "4"]
    assert "called" in tried.err
    assert cli.client.list_groups(STORE) == ()


def test_a_typo_and_a_log_that_fails_end_with_1_and_say_why(cli: Cli, tmp_path: Path) -> None:
    typo = cli.run("check", "-f", written(tmp_path, cli.project, statement="int(log.get("))
    assert typo.status == 1
    assert typo.err.startswith("loghub: mine: InvalidPipeline: mine:P: SyntaxError: ")
    sample = tmp_path / "sample.jsonl"
    sample.write_text('{"n": "1"}\n{"n": "two"}\n')
    failed = cli.run("try", "-f", written(tmp_path, cli.project), "--file", sample, "-o", "json")
    assert failed.status == 1
    assert json.loads(failed.out) == {
        "name": "mine",
        "logs": 2,
        "done": 1,
        "untried": 0,
        "rejected": [
            {
                "line": 2,
                "reason": "PipelineFailed",
                "message": "ValueError: invalid literal for int() with base 10: 'two'",
            }
        ],
        "notes": [],
    }


def test_code_of_a_volume_is_named_and_a_run_that_hangs_is_ended(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(GROUP.format(name="mine", project=cli.project, pipeline=PROCESSOR))
    missing = cli("check", "-f", file)
    assert missing.status == 2
    assert "--code-dir" in missing.err
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text("import time\nwhile True:\n    time.sleep(60)\n")
    hung = cli("check", "-f", file, "--code-dir", code, "--timeout", "1s")
    assert hung.status == 1
    assert "it takes longer than 1 s" in hung.err


def test_mistakes_are_found_before_a_worker_starts(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path, cli.project)
    both = cli("try", "-f", file, "--last", "5", "--from", "10m")
    assert (both.status, "one of --last, --from and --file" in both.err) == (2, True)
    empty = cli("try", "-f", file)
    assert (empty.status, "there are no logs" in empty.err) == (1, True)
    nowhere = cli("try", "-f", written(tmp_path, "no-such-project"))
    assert (nowhere.status, "ProjectNotExist" in nowhere.err) == (1, True)
    invalid = cli("check", "-f", written(tmp_path, cli.project, name="Mine"))
    assert invalid.status == 2
    assert "metadata.name" in invalid.err


QUERY = """sql: "SELECT CAST(contents['n'] AS INT) AS n, 'x' AS kind FROM logs"
    sink: {parquet: {path: out, volumeClaim: data, partitionBy: [kind]}}"""


@pytest.mark.deep
@pytest.mark.spark
def test_a_query_is_checked_and_tried_by_a_worker_of_its_own(cli: Cli, tmp_path: Path) -> None:
    put(cli, SHARDS[0], 1, "two")
    file = tmp_path / "group.yaml"
    file.write_text(GROUP.format(name="mine", project=cli.project, pipeline=QUERY))
    checked = cli.run("check", "-f", file)
    assert (checked.status, checked.out) == (0, "mine: a worker would start with it\n"), checked.err
    tried = cli.run("try", "-f", file, "-o", "json")
    report = json.loads(tried.out)
    assert (tried.status, report["logs"], report["done"], report["rows"]) == (1, 4, 2, 2)
    assert report["firstRows"] == [{"n": 1, "kind": "x"}] * 2
    assert report["partitions"] == [{"partition": "kind=x", "rows": 2}]
    assert [one["logs"] for one in report["rejected"]] == [2]
    file.write_text(GROUP.format(name="mine", project=cli.project, pipeline=QUERY.replace("SELECT", "SELEC")))
    typo = cli.run("check", "-f", file)
    assert typo.status == 1
    assert typo.err.startswith("loghub: mine: InvalidPipeline: [PARSE_SYNTAX_ERROR]")
