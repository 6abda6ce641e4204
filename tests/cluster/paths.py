"""Where the test cluster keeps what it builds and what it runs.

One place for all folders, so that a clean clone on the same machine finds binaries and images again.

``<cache>/cluster-bin/<key>``  compiled programs, one folder per version
``<cache>/images``             image archives and the image builder's store
``<cache>/run/<name>``         one started cluster or apiserver: certificates, logs, data
"""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = Path(__file__).resolve().parent / "tools"


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/loghub-operator``, outside the checkout on purpose."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "loghub-operator"


def run_folder() -> Path:
    return cache_folder() / "run"


def image_folder() -> Path:
    return cache_folder() / "images"
