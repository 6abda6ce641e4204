"""docs/processor.md: its program runs, and its table names tests that exist."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_tests_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    folders = (Path(__file__).parent, ROOT / "tests" / "loghub_worker" / "processing")
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    assert len(named) > 15
    assert named - defined == set()
