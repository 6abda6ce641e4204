"""Everything that the cluster tests need beforehand, in one command.

`make test` starts it in the background and continues with other tests; the cluster's fixture waits for what
is not ready by then.

``python -m tests.cluster.prepare``               packages, programs, images; waits until they are ready
``python -m tests.cluster.prepare --background``  the same, by a process that outlives the command
``python -m tests.cluster.prepare --cluster``     only what the tests on a cluster with nodes need
"""

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from loghub.worker_contract import ENV_CLASS_ARCHIVE
from tests import java, kafka, locked
from tests.cluster import build, chart_tools, images, packages, paths, provider, s3_server
from tests.compat import consumers
from tests.compat.kafka import other_languages
from tests.loghub_worker.sink import spark_reader

NICE = 10


def prepare(*, cluster_only: bool = False) -> list[str]:
    """Make ready what this machine can have; returns why the rest is missing."""
    problems = []
    try:
        upstream = provider.choose() == "upstream"
    except provider.ClusterUnavailableError as error:
        problems.append(str(error))
        upstream = False
    for step in _steps(upstream=upstream, cluster_only=cluster_only):
        try:
            step()
        # A missing image, say, must not keep the apiserver's tests from running.
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            problems.append(str(error))
    return problems


def _steps(*, upstream: bool, cluster_only: bool) -> list[Callable[[], object]]:
    """In this order: seconds first, and images last, which only the last tests need."""
    steps: list[Callable[[], object]] = [
        lambda: packages.install(
            packages.ALL if upstream else {**packages.FOR_APISERVER, **packages.FOR_SINKS}
        ),
        java.install,
        *([] if cluster_only else [kafka.install, spark_reader.install]),  # before the archive of all jars
        _archive_classes,
    ]
    if upstream or not cluster_only:  # kind brings a Kubernetes of its own, but no apiserver without nodes
        steps.append(build.ensure)
    steps.append(chart_tools.ensure_all)  # after the programs that they share packages with
    if not cluster_only:
        steps += [s3_server.program, consumers.install, other_languages.install]
        steps.append(lambda: locked.environment("connect"))
    if upstream:
        steps.append(_build_images)
    return steps


def _build_images() -> None:
    if not packages.missing(packages.FOR_IMAGES):  # which the first step has reported already
        images.ensure_all()


def _archive_classes() -> None:
    """For the workers that tests start; where it cannot be written they start without."""
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    if archive and not Path(archive).exists() and not java.missing():
        subprocess.run([sys.executable, "-m", "loghub_worker.cds_archive", archive], check=False)


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
    parser.add_argument("--cluster", action="store_true", help="only for the tests on a cluster with nodes")
    options = parser.parse_args()
    if options.background:
        in_background()
        return 0
    if options.nice:
        os.nice(NICE)
    problems = prepare(cluster_only=options.cluster)
    for problem in problems:
        print(f"[cluster] {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
