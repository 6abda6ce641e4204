"""Recognizes that files were replaced or changed, as the kubelet does with the files of a Secret."""

import os

Stamp = tuple[int, int] | None


def file_stamps(*paths: str) -> tuple[Stamp, ...]:
    """A value that changes with the content of any of the files, or when one appears or disappears."""
    return tuple(map(_stamp, paths))


def _stamp(path: str) -> Stamp:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
