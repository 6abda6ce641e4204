"""Everything that tests need beforehand, in one command: no test fetches or compiles anything afterwards.

`make test` starts it in the background and continues with other tests; the cluster's fixture waits for what
is not ready by then. There are two lanes side by side, since what Go compiles computes all the time, while
packages, Java and images often wait for the network.

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
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from loghub.contract.worker import ENV_CLASS_ARCHIVE
from tests import java, kafka, locked
from tests.cluster import build, chart_tools, images, packages, paths, provider, s3_server
from tests.compat import consumers
from tests.compat.kafka import other_languages
from tests.compat.pulsar import client_programs as pulsar_programs
from tests.loghub_service.pulsar import official
from tests.loghub_worker.sink import spark_reader

NICE = 10
Step = Callable[[], object]


def prepare(*, cluster_only: bool = False) -> list[str]:
    """Make ready what this machine can have; returns why the rest is missing."""
    problems = []
    try:
        upstream = provider.choose() == "upstream"
    except provider.ClusterUnavailableError as error:
        problems.append(str(error))
        upstream = False
    stopped = threading.Event()
    lanes = (_compiled(upstream, cluster_only), _fetched(upstream, cluster_only))
    with ThreadPoolExecutor(len(lanes)) as pool:
        done = [pool.submit(_do, lane, stopped) for lane in lanes]
        try:
            problems += chain.from_iterable(one.result() for one in done)
        except BaseException:  # Ctrl-C, which has ended what was running
            stopped.set()
            raise
    return problems if cluster_only else problems + _do(_of_clients(), stopped)


def _do(steps: list[Step], stopped: threading.Event) -> list[str]:
    """One after the other; returns what went wrong."""
    problems = []
    for step in steps:
        if stopped.is_set():
            break
        try:
            step()
        # A missing image, say, must not keep the apiserver's tests from running.
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            problems.append(str(error))
    return problems


def _compiled(upstream: bool, cluster_only: bool) -> list[Step]:
    steps: list[Step] = []
    if upstream or not cluster_only:  # kind brings a Kubernetes of its own, but no apiserver without nodes
        steps.append(build.ensure)
    # After the programs that they share packages with. A story on the cluster needs the S3 server.
    return [*steps, chart_tools.ensure_all, s3_server.program]


def _fetched(upstream: bool, cluster_only: bool) -> list[Step]:
    """The archive of Spark's classes comes after all jars, and images after the packages that build them."""
    wanted = packages.ALL if upstream else {**packages.FOR_APISERVER, **packages.FOR_SINKS}
    steps: list[Step] = [lambda: packages.install(wanted), java.install]
    if not cluster_only:
        steps += [kafka.install, spark_reader.install]
    steps.append(_archive_classes)
    if upstream:
        steps.append(_build_images)
    if not cluster_only:
        steps.append(lambda: locked.environment("connect"))
        steps.append(lambda: locked.folder("worker-pandas", without="dev"))
    return steps


def _of_clients() -> list[Step]:
    """These are compiled by Go and by Java; the description of Pulsar's messages is a Go module as well."""
    return [consumers.install, other_languages.install, official.install, pulsar_programs.install]


def _build_images() -> None:
    if not packages.missing(packages.FOR_IMAGES):  # which the first step has reported already
        images.ensure_all()


def _archive_classes() -> None:
    """For the workers that tests start; where it cannot be written they start without."""
    archive = os.environ.get(ENV_CLASS_ARCHIVE)
    if archive and not Path(archive).exists() and not java.missing():
        subprocess.run([sys.executable, "-m", "loghub_worker.image.cds_archive", archive], check=False)


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
