"""A cluster for developers that stays between test runs.

``python -m tests.cluster up``          start it, or show that it runs; new images are loaded
``python -m tests.cluster kubeconfig``  print the path of its kubeconfig
``python -m tests.cluster down``        remove it

Tests use a cluster that is up, and leave it up.
"""

import argparse
import sys

from tests.cluster import build, fixtures, packages, provider


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["up", "down", "kubeconfig"])
    command = parser.parse_args().command
    try:
        chosen = provider.make(provider.choose())
        with fixtures.cluster_lock():
            if command == "down":
                chosen.down()
                return 0
            cluster = chosen.running()
            if command == "up" and cluster is None:
                cluster = _up(chosen)
            elif command == "up":
                chosen.load_images()
    except (provider.ClusterUnavailableError, packages.PackagesMissingError, build.BuildError) as error:
        print(error, file=sys.stderr)
        return 1
    if cluster is None:
        print("no cluster is up", file=sys.stderr)
        return 1
    print(cluster.kubeconfig)
    return 0


def _up(chosen: provider.ClusterProvider) -> provider.Cluster:
    if chosen.name == "upstream":
        packages.install(packages.ALL)
    return chosen.up()


if __name__ == "__main__":
    sys.exit(main())
