"""``python -m loghub_worker.positions POSITION [SHARD ..]``: the cursors of the worker's logstore, as JSON.

`kubectl loghub reset` runs it in a worker's pod, which has the access key and reaches the log service, to
tell which logs a reset would bring again and which it would skip. It changes nothing, is no member of the
group and reads no log. POSITION is ``begin``, ``end`` or unix seconds; without shards it is about all of
them. The answer is a list of objects with ``shard`` and the cursors ``begin``, ``end``
and ``target``, to which the position leads.

Exit status: 0; 1 if the log service does not answer so, with the error on standard error; 2 for other
arguments.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence

from loghub.client.port import LogHub, Position
from loghub.wire.errors import LogHubException
from loghub_consumer.log_service import connect
from loghub_worker.settings import BadSettingsError, read_settings

DONE, FAILED, MISUSED = 0, 1, 2
WITHIN_S = 10.0  # for each request: a person waits for all of them
Positions = list[dict[str, int | str]]


def positions(client: LogHub, logstore: str, position: Position, shards: Sequence[int]) -> Positions:
    """Three requests for each shard. Raises `LogHubException`."""
    numbers = shards or [one.shard for one in client.list_shards(logstore)]
    return [
        {
            "shard": shard,
            "begin": client.get_cursor(logstore, shard, "begin"),
            "end": client.get_cursor(logstore, shard, "end"),
            "target": client.get_cursor(logstore, shard, position),
        }
        for shard in numbers
    ]


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Prints the answer; returns the exit status."""
    try:
        first, *rest = arguments
        position: Position = "begin" if first == "begin" else "end" if first == "end" else int(first)
        shards = [int(one) for one in rest]
    except ValueError:
        print("usage: python -m loghub_worker.positions begin|end|UNIX_S [SHARD ..]", file=sys.stderr)  # noqa: T201
        return MISUSED
    try:
        settings = read_settings(environment)
        client = connect(settings.address, timeout_s=WITHIN_S)
        try:
            found = positions(client, settings.config.logstore, position, shards)
        finally:
            client.close()
    except (BadSettingsError, LogHubException, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - for the one who runs it
        return FAILED
    print(json.dumps(found))  # noqa: T201 - the answer
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
