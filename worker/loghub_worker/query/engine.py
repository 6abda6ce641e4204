"""Which way the rows of a query go to the files of its sink.

The short way: the tasks of the source compute the rows by Arrow and write the files
(`loghub_worker.sink.files.source_files`). The long way: Spark computes the rows and writes the files. Both
give the same rows in files of the same columns. The short way takes only queries of a closed list
(`loghub_worker.query.arrow_query`), and no setting of Spark that might change what Spark would do.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from loghub.contract.worker import SqlPipeline, WorkerConfig
from loghub_worker.query.spark_session import is_remote
from loghub_worker.query.transform import arrow_query
from loghub_worker.sink.batch_sink import BatchSink, InvalidSinkError
from loghub_worker.sink.files.formats import CODEC, TIMESTAMPS
from loghub_worker.sink.files.source_files import LetsSourceWrite, SourceWriting

# Settings of Spark SQL and of Hadoop that do not change what rows a query has, nor their files; or what the
# short way knows, too.
HARMLESS = frozenset(
    {
        CODEC,
        TIMESTAMPS,
        "spark.sql.codegen.factoryMode",
        "spark.sql.codegen.wholeStage",
        "spark.sql.shuffle.partitions",
    }
)
# The texts of queries that Arrow probably computes: what stands before a parenthesis, words that do not occur
# outside of quotes, and all characters that do.
CALLED = frozenset(
    {
        "and", "as", "btrim", "case", "char_length", "coalesce", "concat", "contains", "decimal",
        "element_at", "else", "endswith", "from", "if", "ifnull", "in", "lcase", "left", "length", "lower",
        "ltrim", "not", "nullif", "nvl", "on", "or", "right", "rtrim", "select", "startswith", "substr",
        "substring", "then", "trim", "try_cast", "ucase", "upper", "when", "where",
    }
)  # fmt: skip
UNLIKELY = frozenset(
    {
        "cluster", "collate", "cross", "distinct", "distribute", "div", "except", "explode", "full",
        "group", "having", "ilike", "inner", "intersect", "interval", "join", "lateral", "limit", "natural",
        "offset", "order", "pivot", "qualify", "regexp", "rlike", "sort", "tablesample", "union", "unpivot",
        "values", "window", "with",
    }
)  # fmt: skip
CHARACTERS = frozenset(",.*()[]=<>!|")
TOKEN = re.compile(r"""r?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|`[^`]*`|(\w+)(\s*\()?|(\S)""", re.DOTALL)
PREFIXES = ("spark.sql.", "spark.hadoop.", "spark.plugins", "spark.jars", "spark.files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The way of a query: how the source writes the files, or why it does not."""

    writing: SourceWriting | None = None
    why: str = ""

    @property
    def engine(self) -> str:
        """What computes the rows, for people."""
        return "Spark" if self.writing is None else "Arrow"


def is_likely_short(config: WorkerConfig, sink: BatchSink) -> bool:
    """Whether Arrow will probably compute the rows, as far as the text says, before Spark has seen it."""
    pipeline = config.pipeline
    if _obstacle(config, sink) is not None:
        return False
    assert isinstance(pipeline, SqlPipeline)
    for word, parenthesis, other in TOKEN.findall(pipeline.text.lower()):
        is_other_call = parenthesis and word not in CALLED
        if is_other_call or word in UNLIKELY or (other and other not in CHARACTERS):
            return False
    return True


def way_of(
    config: WorkerConfig, spark: SparkSession, result: DataFrame, sink: BatchSink, *, consumer: str
) -> Way:
    """The way of a checked query, whose rows have the columns of `result`. If it is the short one, the sink
    takes the files of the source from now on."""
    pipeline = config.pipeline
    if (why := _obstacle(config, sink)) is not None:
        return Way(why=why)
    assert isinstance(pipeline, SqlPipeline)
    assert isinstance(sink, LetsSourceWrite)
    query = arrow_query(spark, pipeline.text, result)
    if isinstance(query, str):
        return Way(why=query)
    try:
        options = sink.let_source_write(result, consumer=consumer, is_elsewhere=is_remote(config))
    except InvalidSinkError as error:
        return Way(why=str(error))
    return Way(writing=SourceWriting(query=query, options=options))


def _obstacle(config: WorkerConfig, sink: BatchSink) -> str | None:
    if config.engine == "Spark":
        return "pipeline.engine is Spark"
    if not isinstance(config.pipeline, SqlPipeline):
        return "the pipeline is no SQL query"
    if config.stateful:
        return "the pipeline is stateful"
    if not isinstance(sink, LetsSourceWrite):
        return "the sink writes no files"
    setting = next(_unknown(config.spark_conf), None)
    return None if setting is None else f"spark.conf has {setting}"


def _unknown(settings: Iterable[str]) -> Iterator[str]:
    return (name for name in sorted(settings) if name.startswith(PREFIXES) and name not in HARMLESS)
