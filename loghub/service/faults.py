"""The base of the exceptions that the service raises internally.

`__main__` prints one line for each of them and exits. They are not responses to a client; errors that
become responses are in `api_errors`.

    ServiceFault
    ├── DataDirInUse         datadir: another process owns the data
    ├── CredentialsMissing   credentials: no key to check requests against
    ├── DatabaseUnusable     storage.database: damaged, or of a newer release
    ├── LogDamaged           storage.segment: acknowledged log data is missing or damaged
    ├── DamagedRecord        storage.record: the bytes are not a whole record
    ├── WriteFailed          here: a write or sync failed, which is final
    ├── StorageFailed        storage.batches: the outcome of every request that waits after such a failure
    ├── StorageStopped       server: the process ended because of such a failure
    └── ClientGone           http.body: the client closed the connection
"""

import errno

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ServiceFault(Exception):  # noqa: N818 - "error" is reserved for responses on the wire
    """Raised deliberately, with a message for the operator of the service."""


class WriteFailed(ServiceFault):
    """A write or sync failed: what the file, or the folder's names, have on stable storage is unknown.

    The kernel reports a failed sync once and marks what it could not write as clean, so a later sync succeeds
    without writing it. Only a new start, which reads the disk, may go on. It is no OSError, so that nothing
    which copes with a full disk takes it for one.
    """


def is_disk_full(error: OSError) -> bool:
    """Whether an error means that there is no room, which passes; any other error of a disk may stay."""
    return error.errno in _DISK_FULL
