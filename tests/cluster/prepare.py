"""Everything that the cluster tests need beforehand, in one command.

What for: `make test` starts it in the background and goes on with other tests; the cluster's
fixture waits for what is not ready by then. What it must not know: the tests. Read
next: `packages`, `build`, `images`.

``python -m tests.cluster.prepare``               programs and images; waits until they are there
``python -m tests.cluster.prepare --background``  the same, by a process that outlives the command
"""

import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path

from loghub.worker_contract import ENV_CLASS_ARCHIVE
from tests import java
from tests.cluster import build, chart_tools, images, packages, paths, provider, require

NICE = 10


def prepare() -> None:
    """Raises `provider.ClusterUnavailableError` or `build.BuildError` where that cannot be."""
    everything = require.everything() and packages.can_install()
    if everything:
        java.install()
    _archive_classes()
    if provider.choose() != "upstream":
        chart_tools.ensure_all()
        return  # Docker builds what `kind` needs, when it is needed
    names = packages.missing(packages.ALL)
    if names and everything:
        packages.install(names)
    elif names:
        reason = f"not installed: {', '.join(names)}; {packages.way_to_get(names)}"
        raise provider.ClusterUnavailableError(reason)
    build.ensure()
    chart_tools.ensure_all()  # after the programs that they share packages with
    images.ensure_all()


def _archive_classes() -> None:
    """For the workers that tests start; where it cannot be written they start without."""
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    if archive and not Path(archive).exists() and not java.trouble():
        subprocess.run([sys.executable, "-m", "loghub_worker.class_archive", archive], check=False)


def in_background() -> None:
    paths.cache_folder().mkdir(parents=True, exist_ok=True)
    log = paths.cache_folder() / "prepare.log"
    with log.open("w") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.prepare", "--nice"],
            cwd=paths.REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    threading.Thread(target=child.wait, daemon=True).start()
    print(f"[cluster] programs and images are made ready in the background; log: {log}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.prepare", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--background", action="store_true", help="start it and return at once")
    parser.add_argument("--nice", action="store_true", help="let other work go first")
    options = parser.parse_args()
    if options.background:
        in_background()
        return 0
    if options.nice:
        os.nice(NICE)
    try:
        prepare()
    except (provider.ClusterUnavailableError, build.BuildError) as error:
        print(f"[cluster] {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
