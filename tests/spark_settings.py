"""Settings of Spark and options of its JVMs for tests, whose JVMs live for a minute and see a few rows."""

import os

from loghub.contract.worker import ENV_CLASS_ARCHIVE
from loghub_worker.query.spark_jvm import BRIEF, archive_options

# Generated code, which the JVM compiles too, takes a tenth of the CPU time of a few queries over a few rows.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def jvm_options() -> str:
    """For a JVM that is not a worker's, whose code has most of them. The archive of classes is of the jars of
    the tests' own PySpark, and ignored where they have another path."""
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    return " ".join((BRIEF, *(archive_options(archive) if archive else ())))
