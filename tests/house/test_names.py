"""One class name means one thing (CONTRIBUTING.md 4): a name that returns in a second file is listed with its
reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.test_tree import text_of, tracked_files
from tests.support import ROOT

# What a user writes in an object, and the same as the worker gets it: the CRD's model and the contract's.
OBJECT_AND_CONTRACT = frozenset(
    {
        "ConsoleSink",
        "DeadLetterFolder",
        "DeadLetterLogstore",
        "DeltaSink",
        "FileRoll",
        "JsonSink",
        "KafkaSink",
        "LogFile",
        "LogstoreSink",
        "OnFailure",
        "ParquetSink",
        "PostgresqlSink",
        "ProcessorPipeline",
        "PythonPipeline",
        "RetryLogstore",
        "SparkSink",
    }
)
# What is worked out, and the same in an object's status.
VALUE_AND_STATUS = frozenset({"Lag", "ShardStatus"})
PRODUCTS = ("loghub", "service", "worker", "operator")


def classes(path: Path) -> Iterator[str]:
    return (node.name for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, ast.ClassDef))


def test_a_class_name_means_one_thing() -> None:
    files: dict[str, set[Path]] = {}
    for path in tracked_files():
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PRODUCTS:
            for name in classes(path):
                files.setdefault(name, set()).add(path)
    repeated = {name for name, where in files.items() if len(where) > 1}
    assert repeated == OBJECT_AND_CONTRACT | VALUE_AND_STATUS
