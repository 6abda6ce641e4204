"""docs/cookbook.md: each recipe, taken from the page's own text, makes of its logs what the page shows.

The queries and functions are run as a user's tests run them (`loghub_spark.testing`), in the session of the
process. Whole recipes, with `loghub up` and their sinks, are deep.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from loghub_consumer.service_process import ServiceProcess
from loghub_operator.api import LogHubConsumerGroup, parse_resource, resources_in
from loghub_operator.api.documents import documents_in
from tests.loghub_worker.processing.test_example import up
from tests.loghub_worker.sink.delta_tables import by_duckdb
from tests.postgresql_server import USER, running_postgresql, write_credentials
from tests.support import ROOT, START_GUARD_S, running_service, wait_until

if TYPE_CHECKING:  # so that tests without Spark do not wait for its import
    from pyspark.sql import SparkSession

    from loghub_spark.testing import PipelineRun

PAGE = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?P<before>[^\n]*)\n*```(?P<kind>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
PROJECT, LOGSTORE = "demo", "access"
NUMBERS = range(1, 13)
Row = dict[str, Any]


@dataclass
class Recipe:
    """A section: its blocks by kind, and those of logs and rows by the line before them."""

    title: str
    blocks: dict[str, str] = field(default_factory=dict)
    shown: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, LogHubConsumerGroup]:
        return {
            one["metadata"]["name"]: parse_resource(one) for one in resources_in(self.blocks.get("yaml", ""))
        }

    @property
    def logs(self) -> list[Row]:
        return self.shown["Logs:"]

    def rows(self, group: str) -> list[Row]:
        (found,) = (rows for line, rows in self.shown.items() if line.startswith(f"Rows of `{group}`"))
        return found

    def function(self) -> "Callable[[Any], object]":
        (config_map,) = documents_in(self.blocks["yaml"], "v1", "ConfigMap")
        (code,) = config_map["data"].values()
        module: dict[str, Any] = {}
        exec(code, module)
        run: Callable[[Any], object] = module["run"]
        return run


def recipes() -> dict[int, Recipe]:
    found = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        number, _, title = section.partition("\n")[0].partition(" ")
        recipe = found[int(number)] = Recipe(title)
        for block in BLOCK.finditer(section):
            if block["kind"] == "json":
                lines = block["text"].splitlines()
                recipe.shown[block["before"] or "the result"] = [json.loads(line) for line in lines]
            else:
                recipe.blocks.setdefault(block["kind"], block["text"])
    return found


RECIPES = recipes()


def plain(value: Any) -> Any:
    """A value as the page shows it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(value) if isinstance(value, date | Decimal) else value


def as_shown(rows: list[Row]) -> list[Row]:
    return [{name: plain(value) for name, value in row.items()} for row in rows]


def sorted_rows(rows: list[Row]) -> list[Row]:
    """Without what is null, since files of JSON lack it, and in an order of their own."""
    texts = {json.dumps({name: value for name, value in row.items() if value is not None}) for row in rows}
    return [json.loads(text) for text in sorted(texts)]


def test_the_table_names_every_recipe_and_each_object_is_valid() -> None:
    assert list(RECIPES) == list(NUMBERS)
    for number, recipe in RECIPES.items():
        anchor = recipe.title.lower().replace(",", "").replace(" ", "-")
        assert f"| [{number} {recipe.title}](#{number}-{anchor}) |" in PAGE
        assert recipe.groups or "python" in recipe.blocks
        for group in recipe.groups.values():
            assert (group.spec.project, group.spec.endpoint) == (PROJECT, "embedded")


def run(spark: "SparkSession", recipe: Recipe, name: str, logs: list[Row]) -> "PipelineRun":
    from loghub_spark.testing import run_python, run_sql

    pipeline = recipe.groups[name].spec.pipeline
    per_batch = pipeline.stateful  # windows over all of the logs
    if pipeline.sql is not None:
        return run_sql(pipeline.sql, logs, spark=spark, per_batch=per_batch)
    return run_python(recipe.function(), logs, spark=spark, per_batch=per_batch)


# The state of 5 needs a stream, and 12 is a program.
BY_QUERY = [
    pytest.param(number, name, id=name)
    for number in NUMBERS
    if number not in (5, 12)
    for name in RECIPES[number].groups
    if name != "payments-redriven"
]


@pytest.mark.spark
@pytest.mark.parametrize(("number", "name"), BY_QUERY)
def test_the_logs_become_the_rows_of_the_page(
    number: int, name: str, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPES[number]
    hosts = tmp_path / "hosts.csv"
    hosts.write_text(recipe.blocks.get("csv", ""))
    monkeypatch.setenv("HOSTS", str(hosts))
    monkeypatch.setenv("PSEUDONYM_KEY", "example")
    made = run(spark, recipe, name, recipe.logs)
    assert as_shown(made.rows) == recipe.rows(name)
    assert list(made.columns) == list(recipe.rows(name)[0])
    rejected = recipe.shown.get("In the dead letter:", [])
    assert [one.log for one in made.rejected] == rejected
    if rejected:  # as they come from the logstore of the dead letter
        again = [{**log, "__tag__:dead_letter_consumer_group": name} for log in rejected]
        redriven = run(spark, recipe, f"{name}-redriven", again)
        assert as_shown(redriven.rows) == recipe.rows(f"{name}-redriven")


@pytest.mark.spark
def test_the_tests_of_the_page_on_pipelines_pass(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "hosts.csv"
    hosts.write_text(RECIPES[3].blocks["csv"])
    monkeypatch.setenv("HOSTS", str(hosts))
    teams = ModuleType("teams")
    vars(teams)["run"] = RECIPES[3].function()
    monkeypatch.setitem(sys.modules, "teams", teams)
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```python\n(.*?)```", page.partition("## 9 Tests")[2], re.DOTALL)
    tests: dict[str, Any] = {}
    exec(text, tests)
    names = [name for name in tests if name.startswith("test_")]
    assert len(names) == 2
    for name in names:
        tests[name]()


@pytest.mark.long
def test_the_program_replays_the_time_that_it_is_given_and_ends(
    loghub_service: ServiceProcess, tmp_path: Path
) -> None:
    logstore = "replayed"
    loghub_service.create_logstore(logstore, project=PROJECT)
    loghub_service.put(logstore, [{"id": "e-1"}, {"id": "e-2"}], project=PROJECT)
    text = RECIPES[12].blocks["python"]
    for shown, real in {
        "http://127.0.0.1:8080": loghub_service.endpoint,
        f'logstore="{LOGSTORE}"': f'logstore="{logstore}"',
        'Path("credentials")': f"Path({str(loghub_service.credentials_dir)!r})",
    }.items():
        assert shown in text
        text = text.replace(shown, real)
    program = tmp_path / "replay.py"
    program.write_text(text)
    now = datetime.now(UTC)

    def replayed(begin: datetime, end: datetime) -> list[str]:
        command = [sys.executable, program, begin.isoformat(), end.isoformat()]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=START_GUARD_S
        )
        return done.stdout.split()

    assert replayed(now - timedelta(days=1), now + timedelta(seconds=2)) == ["e-1", "e-2"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service with the logstores of the recipes."""
    with running_service(tmp_path / "service") as service:
        for logstore in (LOGSTORE, "access-errors", "access-rejected"):
            service.create_logstore(logstore, project=PROJECT)
        yield service


def rows_in(folder: Path) -> list[Row]:
    """The rows of a sink's files, of whatever kind."""
    if (folder / "_delta_log").exists():
        columns = ["time", "path", "ms", "day"]
        return as_shown(
            [dict(zip(columns, row, strict=True)) for row in by_duckdb(folder, ", ".join(columns))]
        )
    # What begins with an underscore is the sink's own.
    files = [
        file for file in sorted(folder.rglob("*.*")) if "_" not in {part[0] for part in _below(folder, file)}
    ]
    lines = [line for file in files if file.suffix == ".json" for line in file.read_text().splitlines()]
    if lines:
        rows = [json.loads(line, parse_float=str) for line in lines]
        return [{name: _seconds(value) for name, value in row.items()} for row in rows]
    if not files:
        return []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        names = [str(file) for file in files if file.suffix == ".parquet"]
        return by_name(connection.execute("FROM read_parquet($1, hive_partitioning = true)", [names]))


def by_name(found: duckdb.DuckDBPyConnection) -> list[Row]:
    """The rows of a result of DuckDB."""
    names = [column[0] for column in found.description or ()]
    return as_shown([dict(zip(names, row, strict=True)) for row in found.fetchall()])


def _below(folder: Path, file: Path) -> tuple[str, ...]:
    return file.relative_to(folder).parts


def await_rows(folder: Path, wanted: list[Row]) -> None:
    """Spark's worker is a process of its own, which begins with a JVM."""
    found: list[Row] = []

    def are_there() -> bool:
        found[:] = rows_in(folder)
        return sorted_rows(found) == sorted_rows(wanted)

    try:
        wait_until(are_there, f"{wanted} in {folder.name}", guard_s=5 * START_GUARD_S)
    except AssertionError as error:
        error.add_note(f"there are {found}")
        raise


def _seconds(value: Any) -> Any:
    return re.sub(r"\.000000Z\Z", "Z", value) if isinstance(value, str) else value


REPLACED = {  # where the page means a cluster
    "valueFrom: {secretKeyRef: {name: pseudonyms, key: key}}": "value: example",
}
WHOLE = ["parsed", "orders", "by-team", "masked", "once", "per-minute", "archive", "events"]


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("name", WHOLE)
def test_the_recipe_runs_with_loghub_up(name: str, site: ServiceProcess, tmp_path: Path) -> None:
    (recipe,) = (one for one in RECIPES.values() if name in one.groups)
    hosts = tmp_path / "hosts.csv"
    hosts.write_text(recipe.blocks.get("csv", ""))
    text = recipe.blocks["yaml"].replace("/data/hosts.csv", str(hosts))
    text = text.replace("roll: {targetBytes: 134217728, maxDelaySeconds: 300}", "")
    for shown, real in REPLACED.items():
        text = text.replace(shown, real)
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    wanted = recipe.rows(name)[:-1] if name == "per-minute" else recipe.rows(name)
    site.put(LOGSTORE, recipe.logs, project=PROJECT)
    folder = tmp_path / "state" / "volumes" / "data" / name
    with up(tmp_path, site, file, "--name", name):
        await_rows(folder, wanted)
    if name == "events":
        query = recipe.blocks["sql"].replace("/data/events", str(folder))
        with duckdb.connect() as connection:
            connection.execute(f"LOAD '{_duckdb_extension()}'")
            rows = by_name(connection.execute(query))
        assert rows == recipe.shown["the result"]


def _duckdb_extension() -> Path:
    import duckdb_extension_delta

    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    return extension


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.spark
def test_routes_and_dead_letters_reach_their_logstores_and_come_back(
    site: ServiceProcess, tmp_path: Path
) -> None:
    routes, dead = RECIPES[7], RECIPES[8]
    file = tmp_path / "recipe.yaml"
    file.write_text(routes.blocks["yaml"])
    site.put(LOGSTORE, routes.logs, project=PROJECT)
    errors = [{**row["contents"], "fingerprint": row["fingerprint"]} for row in routes.rows("errors")]
    with up(tmp_path, site, file, "--name", "errors"):
        wait_until(lambda: site.read("access-errors", project=PROJECT) == errors, "the errors")
    file.write_text(dead.blocks["yaml"].replace(f"logstore: {LOGSTORE}\n", "logstore: payments\n"))
    site.create_logstore("payments", project=PROJECT)
    site.put("payments", dead.logs, project=PROJECT)
    rejected = dead.shown["In the dead letter:"]
    with up(tmp_path, site, file, "--name", "payments"):
        wait_until(lambda: site.read("access-rejected", project=PROJECT) == rejected, "the dead letter")
    folder = tmp_path / "state" / "volumes" / "data" / "payments"
    both = dead.rows("payments") + dead.rows("payments-redriven")
    with up(tmp_path, site, file, "--name", "payments-redriven"):
        await_rows(folder, both)


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.spark
def test_the_table_of_postgresql_has_the_latest_state(
    site: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPES[10]
    monkeypatch.setenv("LOGHUB_SINK_CREDENTIALS_DIR", str(write_credentials(tmp_path / "credentials")))
    with running_postgresql() as server:
        with closing(server.connect(user=USER)) as connection:
            connection.execute(recipe.blocks["sql"])  # type: ignore[call-overload]
        text = recipe.blocks["yaml"].replace(
            "host: postgresql.databases.svc",
            f"host: 127.0.0.1\n        port: {server.port}\n        sslMode: disable",
        )
        file = tmp_path / "recipe.yaml"
        file.write_text(text)
        site.put(LOGSTORE, recipe.logs, project=PROJECT)
        wanted = [(row["id"], row["state"]) for row in recipe.shown["In the table `devices`:"]]
        with up(tmp_path, site, file):
            wait_until(
                lambda: server.rows("SELECT id, state FROM devices ORDER BY id") == wanted,
                "the latest states",
            )
        assert server.rows("SELECT * FROM device_events") == []
