"""docs/processor.md: its program runs, and its table names tests that exist."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog

from loghub_consumer.testing import ServiceProcess
from tests.loghub_consumer.support import Site, wait_for
from tests.support import ROOT, STOP_GUARD_S

PAGE = (ROOT / "docs" / "processor.md").read_text(encoding="utf-8")


def program(site: Site) -> str:
    """The program of the page, with the endpoint and the names of the test."""
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    shown = {
        "http://127.0.0.1:8080": site.service.endpoint,
        'logstore="access"': f'logstore="{site.logstore}"',
        'Path("credentials")': f"Path({str(site.service.credentials_dir)!r})",
    }
    text = found[1]
    for written, real in shown.items():
        assert written in text
        text = text.replace(written, real)
    return text


@pytest.mark.long
def test_the_program_of_the_page_consumes_and_saves(site: Site, tmp_path: Path) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    site.put(5, logs=3)
    file = tmp_path / "program.py"
    file.write_text(program(site))
    process = subprocess.Popen([sys.executable, file], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: bool(site.client.list_groups(site.logstore)), "the group")
        wait_for(lambda: site.checkpoints("counters") == site.ends(), "the checkpoint")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=STOP_GUARD_S)
    finally:
        process.kill()
        process.wait(STOP_GUARD_S)
    assert (process.returncode, output) == (0, "0 {'': 15}\n")


def section(number: str) -> list[str]:
    """The code of a section, block by block."""
    text = re.split(rf"^#+ {re.escape(number)} ", PAGE, flags=re.MULTILINE)[1]
    return re.findall(r"```python\n(.*?)```", re.split(r"^#", text, flags=re.MULTILINE)[0], re.DOTALL)


def test_the_test_of_a_processor_on_the_page_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    (program_text,), (test_text,) = section("1"), section("12")
    counts = ModuleType("counts")
    exec(program_text.partition("logging.basicConfig")[0], vars(counts))
    monkeypatch.setitem(sys.modules, "counts", counts)
    tests: dict[str, Any] = {}
    exec(test_text, tests)
    tests["test_logs_are_counted_by_topic"]()
    structlog.reset_defaults()


@pytest.mark.long
def test_the_test_of_a_program_on_the_page_passes(loghub_service: ServiceProcess) -> None:
    def main(**settings: object) -> None:
        assert set(settings) == {"endpoint", "project", "credentials"}
        results = [log | {"ok": "yes"} for log in loghub_service.read("orders")]
        loghub_service.create_logstore("results")
        loghub_service.put("results", results)

    (text,) = section("12.1")
    tests: dict[str, Any] = {"main": main}
    exec(text, tests)
    tests["test_the_program"](loghub_service)


def test_the_tests_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    folders = (Path(__file__).parent, ROOT / "tests" / "loghub_worker" / "processing")
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    assert len(named) > 15
    assert named - defined == set()
