"""The programs that Debian packages provide: checks whether they are installed, and installs them.

One table of what the upstream cluster, the image builder and the tests of sinks need besides the compiled
programs. The demo's `debian.sh` installs packages for demo and tests alike.

``python -m tests.cluster.packages``  install what is missing (root, with apt-get)
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import paths

INSTALLER = paths.REPOSITORY / "operator" / "loghub_cli" / "demo" / "debian.sh"

# Package -> a program on PATH, or a file, that shows it is installed.
FOR_APISERVER = {"openssl": "openssl"}
FOR_NODE = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "nftables": "nft",
    "iproute2": "ip",
    "conntrack": "conntrack",
}
FOR_IMAGES = {
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "busybox-static": "busybox",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
}
# What the tests of sinks write to.
FOR_SINKS = {"postgresql": "pg_ctlcluster"}
ALL = {**FOR_APISERVER, **FOR_SINKS, **FOR_NODE, **FOR_IMAGES}
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def missing(wanted: dict[str, str]) -> list[str]:
    """Names of the packages whose program is not here."""
    return [package for package, sign in wanted.items() if not _is_here(sign)]


def _is_here(sign: str) -> bool:
    if sign.startswith("/"):
        return Path(sign).exists()
    # Daemons live in sbin folders, which an ordinary user's PATH may lack.
    return shutil.which(sign, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}") is not None


class PackagesMissingError(RuntimeError):
    """Debian packages are missing; the message says which, why, and how to get them."""


def require(wanted: dict[str, str]) -> None:
    """Raises `PackagesMissingError` where one is missing."""
    if names := missing(wanted):
        raise PackagesMissingError(_message(names, _installer("--check")))


def install(wanted: dict[str, str]) -> None:
    """Install what is missing. Raises `PackagesMissingError` where that is not possible."""
    if (names := missing(wanted)) and (reason := _installer(*names)):
        raise PackagesMissingError(_message(names, reason))


def _message(names: list[str], reason: str) -> str:
    way = f"as root: apt-get install -y --no-install-recommends {' '.join(names)}"
    return f"not installed: {', '.join(names)}; {reason or '`make test` installs them'}; {way}"


def _installer(*arguments: str) -> str:
    """Why it could not or may not install; empty where it could."""
    done = subprocess.run(["sh", INSTALLER, *arguments], stderr=subprocess.PIPE, text=True, check=False)
    said = done.stderr.strip().splitlines()
    if done.returncode == 0:
        return ""
    return said[-1] if said else f"debian.sh ended with {done.returncode}"


def main() -> int:
    try:
        install(ALL)
    except PackagesMissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
