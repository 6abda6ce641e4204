"""What makes a sink: one factory for the type of its settings, which loads that sink and no other."""

import json
import subprocess
import sys
from typing import get_args

from loghub.contract.sinks import NoSink, Sink
from loghub_worker.sink.sinks import FACTORIES
from tests.support import ROOT

GUARD_S = 300
LIBRARIES = ("pyspark", "psycopg", "deltalake", "obstore")
LOADED = """
import json, sys
import loghub_worker.sink.sinks
print(json.dumps(sorted(sys.modules)))
"""


def test_every_sink_of_the_contract_has_a_factory() -> None:
    assert set(FACTORIES) == set(get_args(Sink)) - {NoSink}


def test_the_table_of_factories_loads_neither_a_sink_nor_its_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=GUARD_S
    )
    loaded = set(json.loads(done.stdout))
    prefix = "loghub_worker.sink."
    assert {name.removeprefix(prefix) for name in loaded if name.startswith(prefix)} == {
        "batch_sink",
        "sink_start",
        "sinks",
    }
    assert loaded.isdisjoint(LIBRARIES)
