"""What the real client libraries do on particular codes, and which code the service sends where.

What for: a code is chosen by what the clients make of it, not by how well it reads
(docs/sls-protocol.md 2.4). What it must not know: how a request is served. Read next: `error_codes`.
"""

from dataclasses import dataclass

from loghub.wire.error_codes import Code

# The one code for "you do not hold this shard" that Go and Java both understand, so it is sent
# for an unknown consumer too: ConsumerNotExist is Java's alone, ConsumerNotExsit Go's alone.
CHECKPOINT_BY_A_STRANGER = Code.CONSUMER_NOT_MATCH

# No code for a vanished shard is common to both. Go's own misspelling is sent to Go only.
CHECKPOINT_OF_NO_SHARD = Code.SHARD_NOT_EXIST
CHECKPOINT_OF_NO_SHARD_FOR_GO = "ShardNotExsit"

# How the User-Agents of Python's, Java's and our own clients begin.
_NOT_GO = ("log-python-sdk", "Consumer-Library", "aliyun-log", "loghub-client/")

# Substring, any case, by which Python jumps to the END of the shard and Java starts over:
# never send it for a cursor that is merely expired (docs/sls-protocol.md 7.8).
LOSES_DATA_IN_CLIENTS = "invalidcursor"


def checkpoint_of_no_shard(user_agent: str) -> str:
    """The code to answer a checkpoint of a shard that is gone, by who asks.

    Go's consumer sends ``<group>_<consumer>`` as its User-Agent, the others begin with their
    library's name (docs/sls-protocol.md 1.2); an agent that names none is taken for Go, which loops
    at its shutdown without its own spelling (4.4).
    """
    return CHECKPOINT_OF_NO_SHARD if user_agent.startswith(_NOT_GO) else CHECKPOINT_OF_NO_SHARD_FOR_GO


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What one or more clients do when they see the code at an API."""

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


def markdown() -> str:
    """The table for the documentation."""
    lines = ["| code | API | client | what it does | do we send it |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {', '.join(t.codes)} | {t.api} | {t.clients} | {t.effect} | {t.we_send} |" for t in TREATMENTS
    ]
    return "\n".join(lines) + "\n"
