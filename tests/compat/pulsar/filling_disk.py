"""``python -m tests.compat.pulsar.filling_disk``: the service on a disk that is full while a file exists.

The path of the file is in the variable `IS_FULL`.
"""

import os
import sys
from pathlib import Path

from loghub_service import __main__ as service
from loghub_service.ports import OsDisk

IS_FULL = "LOGHUB_TEST_DISK_IS_FULL"


class FillingDisk(OsDisk):
    """The rest of what is allocated can be written, as on any full disk."""

    def free_bytes(self, path: str) -> int:
        return 0 if Path(os.environ[IS_FULL]).exists() else super().free_bytes(path)


if __name__ == "__main__":
    service.OsDisk = FillingDisk  # type: ignore[misc]
    sys.exit(service.main())
