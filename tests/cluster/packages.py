"""The programs that Debian packages bring: are they here, and getting them.

What for: one table of what the upstream cluster and the image builder need beside the
compiled programs. What it must not know: how they are called. Read next: `upstream`,
`images`.

``python -m tests.cluster.packages``  install what is missing (root, with apt-get)
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Package -> a program on PATH, or a file, that shows it is installed.
FOR_APISERVER = {"etcd-server": "etcd", "openssl": "openssl"}
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
ALL = {**FOR_APISERVER, **FOR_NODE, **FOR_IMAGES}
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def missing(wanted: dict[str, str]) -> list[str]:
    """Names of the packages whose program is not here."""
    return [package for package, sign in wanted.items() if not _is_here(sign)]


def _is_here(sign: str) -> bool:
    if sign.startswith("/"):
        return Path(sign).exists()
    # Daemons live in sbin folders, which an ordinary user's PATH may lack.
    return shutil.which(sign, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}") is not None


def way_to_get(names: list[str]) -> str:
    return "as root: apt-get install -y --no-install-recommends " + " ".join(names)


def can_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(names: list[str]) -> None:
    """Install by apt-get; only root can. Retries once with fresh package lists."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *names]
    if subprocess.run(command, env=environment, stdout=sys.__stderr__, check=False).returncode == 0:
        return
    subprocess.run(["apt-get", "update", "-q"], env=environment, stdout=sys.__stderr__, check=True)
    subprocess.run(command, env=environment, stdout=sys.__stderr__, check=True)


def main() -> int:
    names = missing(ALL)
    if not names:
        print("nothing is missing")
        return 0
    if not can_install():
        print(f"missing: {' '.join(names)}; {way_to_get(names)}")
        return 1
    install(names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
