"""The base of the exceptions that the service raises internally.

`__main__` prints one line for each of them and exits. They are not responses to a client; errors that
become responses are in `api_errors`.

    ServiceFault
    ├── DataDirInUse         datadir: another process owns the data
    ├── CredentialsMissing   credentials: no key to check requests against
    ├── DatabaseUnusable     storage.database: damaged, or of a newer release
    ├── LogDamaged           storage.segment: acknowledged log data is missing or damaged
    ├── DamagedRecord        storage.record: the bytes are not a whole record
    ├── WriteFailed          storage.segment: a write or sync failed, which is final
    ├── StorageFailed        storage.batches: the outcome of every request that waits after such a failure
    ├── StorageStopped       server: the process ended because of such a failure
    └── ClientGone           http.body: the client closed the connection
"""


class ServiceFault(Exception):  # noqa: N818 - "error" is reserved for responses on the wire
    """Raised deliberately, with a message for the operator of the service."""
