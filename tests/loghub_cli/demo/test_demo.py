"""One whole demo with real Spark, in a short form; then a file is deleted, and the count reports it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from loghub_cli.demo import verify
from loghub_cli.demo.__main__ import main
from tests.support import ROOT

GUARD_S = 1500.0
EXAMPLE = ROOT / "deploy" / "examples" / "access-log.yaml"
SUMMARY = re.compile(r"^sent (\d+), in the sink (\d+), lost (\d+), duplicates (\d+)$", re.MULTILINE)


def finished(command: list[str]) -> tuple[int, str]:
    """Exit status and output; ended whatever happens."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        output, _ = process.communicate(timeout=GUARD_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
        pytest.fail(f"the demo did not end:\n{output[-6000:]}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode, output


def example_for_short_lives(folder: Path) -> Path:
    """The example with one worker, to which the demo adds another one, and without the JVM's second compiler:
    that is not worth its time in a minute's life."""
    documents = list(yaml.safe_load_all(EXAMPLE.read_text()))
    documents[-1]["spec"]["replicas"] = 1
    documents[-1]["spec"]["spark"] = {"conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}}
    path = folder / "cr.yaml"
    path.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    return path


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_whole_demo_counts_right_and_detects_a_deleted_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "odd.log"
    logs.write_bytes(b"".join(b"line %d of \xe9quals\n" % (n % 5) for n in range(300)))
    folder = tmp_path / "demo"
    # The bounds are guards for a slow machine; the pauses are what makes it short.
    status, output = finished(
        [
            *(sys.executable, "-m", "loghub_cli.demo", "--logs", str(logs), "--state-dir", str(folder)),
            *("--cr", str(example_for_short_lives(tmp_path)), "--rate", "200", "--pause", "0.5"),
            *("--limit", "900", "--plain"),
        ]
    )
    assert status == 0, output[-6000:]
    result = SUMMARY.search(output)
    assert result, output[-6000:]
    sent, in_sink, lost, duplicates = map(int, result.groups())
    assert (lost, duplicates) == (0, 0)
    assert sent == in_sink > 300, "the file came more than once"
    for reported in ("adds a worker", "with SIGKILL", "are not UTF-8"):
        assert reported in output
    # On a fast machine the worker that was killed is back within the group's timeout.
    moved = "(was access-log-0)" in output and "(again)" in output
    assert moved or "was back before its session timed out, so it kept its shards" in output

    record, sink = folder / "producer" / "record", folder / "volumes" / "access-log-sink" / "access"
    verify.sink_files(sink)[0].unlink()
    assert verify.main([str(record), str(sink)]) == 1
    again = SUMMARY.search(capsys.readouterr().out)
    assert again
    assert int(again[3]) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--logs", "absent.log"], "there is no file absent.log"),
        (["--logs", os.devnull], "is not a file"),
        (["--cr", "absent.yaml"], "absent.yaml"),
    ],
)
def test_wrong_input_gives_a_one_line_error(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--state-dir", str(tmp_path)]) in (1, 2)
    reported = capsys.readouterr().err
    assert message in reported
    assert reported.count("\n") == 1
