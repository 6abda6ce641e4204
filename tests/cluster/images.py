"""Builds the project's images from its one Dockerfile without a Docker engine.

`buildah` builds the three targets on a base root that `mmdebstrap` creates, because there may be no image
registry in reach. Each image is stored under a key of its sources: unchanged sources cost nothing, changed
sources rebuild the last layer.

``python -m tests.cluster.images``  build what is missing, or wait for a running build
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.cluster import dockerfile, mounts, paths, runs

TARGETS = ("service", "operator", "worker")
PAUSE = "localhost/loghub-pause:1"
BASE_PACKAGES = ("python3", "python3-venv", "openjdk-17-jre-headless", "tini", "ca-certificates")
BASE_SUITE = "bookworm"
GUARD_S = 3600.0
SHARED = "/shared"  # of a container
KEPT = 3
# Build settings of this machine that reach package downloads; none is kept in an image.
PASSED_ON = ("PIP_INDEX_URL", "PIP_CERT", "DEFAULT_ARTIFACT_REPOSITORY")

_PAUSE_DOCKERFILE = """FROM scratch
COPY busybox /busybox
ENTRYPOINT ["/busybox", "sh", "-c", "trap 'exit 0' TERM INT; /busybox sleep 2147483647 & wait"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image: its name as pods write it, and the OCI layout folder that holds it."""

    name: str
    layout: Path


def ensure_all() -> dict[str, Image]:
    """Every target and ``suspension_of``, built if needed, by target."""
    with runs.locked(paths.image_folder() / "lock", guard_s=GUARD_S, what="building the images", say=_say):
        try:
            return {"pause": _pause(), **{target: _target(target) for target in TARGETS}}
        finally:
            _forget_working_containers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with the files of an image and the folder ``shared``, whose path in it is `SHARED`. Its
    processes and its network are those of this machine."""

    number: str
    shared: Path

    def command(self, *program: str, variables: Mapping[str, str]) -> list[str]:
        """Runs the program in it, as the user and with the variables of the image and these."""
        volume = f"{self.shared}:{SHARED}"
        given = [f"--env={name}={value}" for name, value in variables.items()]
        return [
            *buildah(),
            "run",
            "--isolation",
            "chroot",
            "--volume",
            volume,
            *given,
            self.number,
            "--",
            *program,
        ]


@contextmanager
def container(target: str, shared: Path) -> Iterator[Container]:
    """A container of a target of the Dockerfile, which is built if needed. No image is built meanwhile."""
    with runs.locked(paths.image_folder() / "lock", guard_s=GUARD_S, what="building the images", say=_say):
        try:
            made = _run([*buildah(), "from", "--pull-never", _target(target).name])
            yield Container(number=made.strip(), shared=shared)
        finally:
            _forget_working_containers()


def key(target: str) -> str:
    """16 hex digits of everything that the target is made from."""
    inputs = [Path("Dockerfile"), Path(".dockerignore"), *dockerfile.inputs(paths.REPOSITORY, target)]
    return _digest(base_key(), *(f"{path}\0{_digest_file(paths.REPOSITORY / path)}" for path in inputs))


def base_key() -> str:
    return _digest(BASE_SUITE, *base_command(Path("-")))


def base_command(out: Path) -> list[str]:
    """A minimal Debian root with what the Dockerfile would otherwise install."""
    left_out = ("doc", "man", "locale")
    return [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(BASE_PACKAGES)}",
        *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in left_out),
        # The Java package links manual pages into a folder that the exclusion leaves out.
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        "--format=tar",
        BASE_SUITE,
        str(out),
    ]


def build_command(*, recipe: Path, context: Path, image: str, target: str = "", base: str = "") -> list[str]:
    """`buildah bud` with layers kept, in a chroot instead of a container."""
    command = [
        *buildah(),
        "bud",
        "--layers",
        "--isolation",
        "chroot",
        "--file",
        str(recipe),
        "--tag",
        image,
    ]
    if target:
        # There is no cargo in the base, so the images of the tests are without the native part.
        images = [f"{name}={base}" for name in ("BASE_IMAGE", "RUST_IMAGE")]
        command += ["--target", target, *chain.from_iterable(("--build-arg", image) for image in images)]
    for setting in PASSED_ON:
        if value := os.environ.get(setting):
            command += ["--build-arg", f"{setting}={value}"]
    if certificate := os.environ.get("PIP_CERT"):
        command += ["--volume", f"{certificate}:{certificate}:ro"]
    return [*command, str(context)]


def push_command(image: str, out: Path) -> list[str]:
    """Into an OCI layout folder; zstd at its fastest, since the archive never travels."""
    fast = ["--compression-format", "zstd", "--compression-level", "1"]
    return [*buildah(), "push", "--quiet", *fast, image, f"oci:{out}:{image}"]


def buildah() -> list[str]:
    """`buildah` with its store in our cache folder and overlay layers."""
    store, run = paths.image_folder() / "store", paths.image_folder() / "buildah-run"
    return ["buildah", "--root", str(store), "--runroot", str(run), "--storage-driver", "overlay"]


def _pause() -> Image:
    image = Image(name=PAUSE, layout=paths.image_folder() / f"pause-{_digest(_PAUSE_DOCKERFILE)}")
    if image.layout.exists():
        return image
    context = paths.image_folder() / "pause-context"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy2(_which("busybox"), context / "busybox")
    (context / "Dockerfile").write_text(_PAUSE_DOCKERFILE)
    _run(build_command(recipe=context / "Dockerfile", context=context, image=PAUSE))
    return _export(image)


def _target(target: str) -> Image:
    now = key(target)
    image = Image(name=f"localhost/loghub-{target}:{now}", layout=paths.image_folder() / f"{target}-{now}")
    if image.layout.exists():
        return image
    base = _base()
    _say(f"building the {target} image (seconds if only sources changed)")
    recipe, context = paths.REPOSITORY / "Dockerfile", paths.REPOSITORY
    _run(build_command(recipe=recipe, context=context, image=image.name, target=target, base=base))
    _export(image)
    _forget_older(target, image)
    return image


def _forget_older(target: str, latest: Image) -> None:
    """Keep the last few: another checkout, or a cluster that starts right now, may want them."""
    layouts = sorted(paths.image_folder().glob(f"{target}-*"), key=lambda path: path.stat().st_mtime)
    _remove(layouts[:-KEPT])
    retained = {path.name.removeprefix(f"{target}-") for path in layouts[-KEPT:]}
    listing = [*buildah(), "images", "--format", "{{.Name}}:{{.Tag}}"]
    names = subprocess.run(listing, capture_output=True, text=True, timeout=120, check=False).stdout.split()
    ours = [name for name in names if name.startswith(f"localhost/loghub-{target}:") and name != latest.name]
    for name in ours:
        if name.rpartition(":")[2] not in retained:
            _quiet([*buildah(), "rmi", name])


def _base() -> str:
    """Name of the base image in the builder's store; makes it if it is not there."""
    image = f"localhost/loghub-base:{base_key()}"
    if _quiet([*buildah(), "inspect", "--type", "image", image]):
        return image
    context = paths.image_folder() / "base-context"
    context.mkdir(parents=True, exist_ok=True)
    archive = context / "base.tar"
    _say("making the base image from Debian packages (about a minute)")
    _run(base_command(archive))
    (context / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
    _run(build_command(recipe=context / "Dockerfile", context=context, image=image))
    archive.unlink()
    return image


def _export(image: Image) -> Image:
    part = image.layout.with_name(f"new-{image.layout.name}")
    _remove([part])
    _run(push_command(image.name, part))
    index = part / "index.json"
    value = json.loads(index.read_text())
    for manifest in value["manifests"]:
        # containerd names an imported image by this annotation.
        manifest["annotations"]["io.containerd.image.name"] = image.name
    index.write_text(json.dumps(value))
    part.rename(image.layout)
    return image


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _forget_working_containers() -> None:
    """Builds (killed ones too) leave working containers and their mounts behind."""
    store = paths.image_folder() / "store"
    if store.exists() and mounts.below(store, Path("/proc/self/mounts").read_text()):
        _quiet([*buildah(), "rm", "--all"])
        mounts.unmount_below(store)


def _which(program: str) -> str:
    result = shutil.which(program)
    if result is None:
        raise FileNotFoundError(f"{program} is not installed")
    return result


def _quiet(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0


def _run(command: list[str]) -> str:
    """What the command prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise RuntimeError(f"{' '.join(command[:2])} failed ({done.returncode}):\n{tail}")
    return done.stdout


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _say(line: str) -> None:
    print(f"[cluster] {line}", file=sys.__stderr__, flush=True)


def main() -> int:
    for image in ensure_all().values():
        print(f"{image.name}\t{image.layout}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
