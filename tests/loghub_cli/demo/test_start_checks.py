"""What the demo rejects at its start is one clear line, and the results of the previous demo are kept."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loghub_cli.demo.__main__ import main
from loghub_cli.demo.scenario import add_worker, with_a_line_of_replicas
from loghub_cli.up.paths import DEMO_MARK
from tests.loghub_operator.support.examples import document
from tests.support import ROOT

EXTRA_ONLY = """
import sys
for name in ("pyarrow", "pyspark"):
    sys.modules[name] = None
from loghub_cli.demo.__main__ import main
sys.exit(main(["--state-dir", sys.argv[1]]))
"""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"pipeline": {"sink": {"parquet": None, "logstore": {"name": "other"}}}}, "the demo counts Parquet"),
        ({"endpoint": "https://cn-hangzhou.log.aliyuncs.com"}, "the demo runs on the embedded service"),
        ({"replicas": -1}, "spec.replicas"),
    ],
)
def test_a_group_that_the_demo_cannot_run_is_rejected(
    spec: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cr, folder = tmp_path / "cr.yaml", tmp_path / "demo"
    cr.write_text(yaml.safe_dump(document(spec)))
    (folder / "producer").mkdir(parents=True)
    (folder / "producer" / "record").touch()
    (folder / DEMO_MARK).touch()
    assert main(["--cr", str(cr), "--state-dir", str(folder)]) in (1, 2)
    reported = capsys.readouterr()
    assert message in reported.err
    assert (reported.out, reported.err.count("\n")) == ("", 1)
    assert (folder / "producer" / "record").exists()


@pytest.mark.long
def test_missing_packages_are_named(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", EXTRA_ONLY, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr == "demo: it needs pyarrow, pyspark; run it by `make demo` in a clone\n"


@pytest.mark.parametrize(("given", "wanted"), [(None, 2), (3, 4)])
def test_a_manifest_without_replicas_gets_the_line_that_the_demo_edits(
    given: int | None, wanted: int, tmp_path: Path
) -> None:
    # In the flow style, as JSON is, there is no such line either.
    written = document({"replicas": given})
    text = yaml.safe_dump(written, default_flow_style=True)
    path = tmp_path / "cr.yaml"
    path.write_text(with_a_line_of_replicas(text, written))
    assert add_worker(path) == wanted
    written["spec"]["replicas"] = wanted
    assert yaml.safe_load(path.read_text()) == written
