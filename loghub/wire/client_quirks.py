"""How the real client libraries react to particular error codes, and which code the service therefore sends.

The service chooses a code by the effect that it has on the clients, not by how well its name fits
(docs/sls-protocol.md 2.4). `error_codes` has the meaning of each code.
"""

from dataclasses import dataclass

from loghub.wire.error_codes import Code

# The only code for "this consumer does not hold the shard" that Go and Java both understand, so it is
# sent for an unknown consumer too: only Java knows ConsumerNotExist, only Go ConsumerNotExsit.
CHECKPOINT_BY_A_STRANGER = Code.CONSUMER_NOT_MATCH

# Both have no common code for a deleted shard. Go's own misspelling is sent only to Go.
CHECKPOINT_OF_NO_SHARD = Code.SHARD_NOT_EXIST
CHECKPOINT_OF_NO_SHARD_FOR_GO = "ShardNotExsit"

# The prefixes of the User-Agents of the Python and Java clients and of our own.
_NOT_GO = ("log-python-sdk", "Consumer-Library", "aliyun-log", "loghub-client/")

# On this substring, in any case, Python jumps to the END of the shard and Java starts over:
# never send it for a cursor that has only expired (docs/sls-protocol.md 7.8).
LOSES_DATA_IN_CLIENTS = "invalidcursor"


def checkpoint_of_no_shard(user_agent: str) -> str:
    """The code that answers a checkpoint of a deleted shard, depending on the client.

    Go's consumer sends ``<group>_<consumer>`` as its User-Agent, while the others begin with the name
    of their library (docs/sls-protocol.md 1.2). A User-Agent without such a name is treated as Go,
    which loops at its shutdown unless it gets its own spelling (4.4).
    """
    return CHECKPOINT_OF_NO_SHARD if user_agent.startswith(_NOT_GO) else CHECKPOINT_OF_NO_SHARD_FOR_GO


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """The reaction of one or more clients to a code at an API."""

    codes: tuple[str, ...]
    api: str
    clients: str
    effect: str
    we_send: str


TREATMENTS = (
    Treatment(
        codes=("ConsumerGroupAlreadyExist",),
        api="CreateConsumerGroup",
        clients="all",
        effect="go on; Python and Java update the settings",
        we_send="yes",
    ),
    Treatment(
        codes=("ConsumerNotMatch",),
        api="UpdateCheckPoint",
        clients="Go, Java",
        effect="release the shard, discard the checkpoint",
        we_send="yes, for an unknown consumer too",
    ),
    Treatment(
        codes=("ConsumerNotExsit", "ConsumerNotExist"),
        api="UpdateCheckPoint",
        clients="Go the first, Java the second",
        effect="as ConsumerNotMatch",
        we_send="never",
    ),
    Treatment(
        codes=("ShardNotExsit", "ShardNotExist"),
        api="UpdateCheckPoint",
        clients="Go the first, Java the second",
        effect="as ConsumerNotMatch",
        we_send="the first to Go, the second to all others",
    ),
    Treatment(
        codes=("InvalidCursor", "SLSInvalidCursor"),
        api="PullLogs",
        clients="Python, Java",
        effect="Python jumps to the end and loses data, Java starts over",
        we_send="for a malformed cursor only, never for an expired one",
    ),
    Treatment(
        codes=("any with HTTP 403",),
        api="PullLogs",
        clients="Python, Go",
        effect="sleep 5 s",
        we_send="for quotas",
    ),
    Treatment(
        codes=("InternalServerError", "RequestTimeout", "any with HTTP 5xx"),
        api="any",
        clients="Python",
        effect="up to 10 tries, also of a POST: PutLogs may be done twice",
        we_send="InternalServerError, ServerBusy",
    ),
    Treatment(
        codes=("Unauthorized", "InvalidAccessKeyId", "SecurityToken…"),
        api="any",
        clients="Python with a refresher",
        effect="waits up to 300 s and takes new keys",
        we_send="Unauthorized, InvalidAccessKeyId",
    ),
)
