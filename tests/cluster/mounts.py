"""Mounts below a folder: finds them, unmounts them, and removes the folder safely.

An image builder or a kubelet that was killed leaves mounts behind.
"""

import re
import shutil
import subprocess
from pathlib import Path

_TABLE = Path("/proc/self/mounts")


def below(folder: Path, table: str) -> list[str]:
    """Mount points at or below ``folder`` in ``table`` (as /proc/self/mounts), innermost first."""
    points = [_unescape(line.split()[1]) for line in table.splitlines()]
    return [point for point in reversed(points) if Path(point).is_relative_to(folder)]


def _unescape(point: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)


def unmount_below(folder: Path) -> None:
    for point in below(folder, _TABLE.read_text()):
        subprocess.run(["umount", "--lazy", point], capture_output=True, timeout=60, check=False)


def remove_folder(folder: Path) -> None:
    """Remove it only once nothing is mounted below: a mounted volume is not ours to empty."""
    unmount_below(folder)
    if left := below(folder, _TABLE.read_text()):
        raise RuntimeError(f"still mounted: {', '.join(left)}")
    shutil.rmtree(folder, ignore_errors=True)
