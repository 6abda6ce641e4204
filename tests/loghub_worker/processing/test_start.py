"""What the process of a worker with a processor imports."""

import subprocess
import sys

from tests.support import ROOT

# The first module of the process, and what it imports once it knows that the pipeline is a processor.
WORKER = ("loghub_worker.__main__", "loghub_worker.processing.processor_worker")
OF_SPARK = {"pyspark", "py4j", "pyarrow", "pandas", "numpy"}


def test_a_worker_with_a_processor_starts_without_spark() -> None:
    """It would need 0.15 s of CPU time more, half as much as all that it needs."""
    command = [sys.executable, "-c", f"import sys, {', '.join(WORKER)}; print(*sys.modules)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    loaded = set(done.stdout.split())
    assert loaded >= {*WORKER}
    assert loaded.isdisjoint(OF_SPARK)
