"""Four processes that all believe to hold the same shards, with deaths between any two steps."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.loghub_worker.sink.commit_log_child import BEGIN, SHARDS, delivered, lines_of
from tests.loghub_worker.sink.racing_writer import END
from tests.support import ROOT

WRITERS = 4
GUARD_S = 120


@pytest.mark.long
def test_racing_writers_deliver_every_line_once(site_of_many: Path) -> None:
    module = "tests.loghub_worker.sink.racing_writer"
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(site_of_many), f"w-{number}", str(number)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "opened\n"  # or "", if it ends
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        said = [writer.communicate(timeout=GUARD_S)[0] for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    print(*said)
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    assert delivered(site_of_many) == sum((lines_of(shard, BEGIN, END) for shard in SHARDS), Counter())
    assert sum("refused" in outcomes for outcomes in said) > 1, "they were never in each other's way"
