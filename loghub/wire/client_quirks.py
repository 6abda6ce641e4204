"""Codes that depend on the client, because the client libraries react differently to them.

The service chooses a code by the effect that it has on the clients, not by how well its name fits;
docs/sls-protocol.md 2.4 lists the effects. `error_codes` has the meaning of each code.
"""

from loghub.wire.error_codes import Code

# Both have no common code for a deleted shard. Go's own misspelling is sent only to Go.
CHECKPOINT_OF_NO_SHARD = Code.SHARD_NOT_EXIST
CHECKPOINT_OF_NO_SHARD_FOR_GO = "ShardNotExsit"

# The prefixes of the User-Agents of the Python and Java clients and of our own.
_NOT_GO = ("log-python-sdk", "Consumer-Library", "aliyun-log", "loghub-client/")


def checkpoint_of_no_shard(user_agent: str) -> str:
    """The code that answers a checkpoint of a deleted shard, depending on the client.

    Go's consumer sends ``<group>_<consumer>`` as its User-Agent, while the others begin with the name
    of their library (docs/sls-protocol.md 1.2). A User-Agent without such a name is treated as Go,
    which loops at its shutdown unless it gets its own spelling (4.4).
    """
    return CHECKPOINT_OF_NO_SHARD if user_agent.startswith(_NOT_GO) else CHECKPOINT_OF_NO_SHARD_FOR_GO
