"""Settings of Spark and options of its JVMs for tests, whose JVMs live for a minute and see a few rows."""

import os

from loghub.contract.worker import ENV_CLASS_ARCHIVE

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Generated code, which the JVM compiles too, takes a tenth of the CPU time of a few queries over a few rows.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def jvm_options() -> str:
    """For a JVM that is not a worker's, whose code has most of them. The archive of classes is of the jars of
    the tests' own PySpark, and ignored where they have another path."""
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    shared = f" -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off" if archive else ""
    return f"{BRIEF}{shared}"
