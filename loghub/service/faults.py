"""The root of what the service raises inside itself.

What for: `__main__` turns every one of them into one clear line; none of them is an answer
(that is `api_errors`). What it must not know: who raises. Read next: the tree.

    ServiceFault
    ├── DataDirInUse         datadir: another process owns the data
    ├── CredentialsMissing   credentials: no key to check requests against
    ├── DatabaseUnusable     storage.database: another version, or damaged
    ├── LogDamaged           storage.segment: acknowledged log data is not there
    ├── DamagedRecord        storage.record: these bytes are no record
    ├── WriteFailed          storage.segment: a write or sync failed, which is final
    ├── StorageFailed        storage.batches: told to all who wait after such a failure
    ├── StorageStopped       server: the process ended because of it
    └── ClientGone           http.body: the sender hung up
"""


class ServiceFault(Exception):  # noqa: N818 - "error" is what is answered on the wire
    """Raised on purpose; its text is for a person."""
