"""Consumer groups: list, create, update, delete, heartbeat, checkpoints (docs/sls-protocol.md 2.1, 4.3).

These are the actions on ``/logstores/{ls}/consumergroups``. `loghub.domain.coordinator` assigns the shards.
"""

from http import HTTPStatus

from loghub.domain.group import Configure, Heartbeat, RefusalCode, SaveCheckpoint, ShardEntry
from loghub.wire import cursor as wire_cursor
from loghub.wire import errors, names
from loghub.wire.errors import Code, LogHubError, MalformedCursor, MalformedName
from loghub_service.api import parse
from loghub_service.api import parse as lookup
from loghub_service.api.logs import check_cursor
from loghub_service.engine import Engine
from loghub_service.errors import failure
from loghub_service.groups import RegisteredGroup
from loghub_service.messages import EMPTY, Request, ServiceResponse, json_response


async def list_groups(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    store = lookup.logstore(engine, request, ls)
    groups = engine.groups.of(store.saved.id)
    for group in list(groups.values()):
        await engine.groups.durable(group)
    return json_response([settings_json(group) for _, group in sorted(groups.items())])


def settings_json(group: RegisteredGroup) -> dict[str, object]:
    state = group.state
    return {"name": state.group, "timeout": round(state.timeout_s), "order": state.order}


async def create_group(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """Create a group. Its name is the field ``consumerGroup`` of this request, but ``name`` in the list."""
    fields = parse.json_object(request)
    limits = engine.settings.limits
    try:
        name = names.CONSUMER_GROUP.check(parse.string(fields, "consumerGroup"))
        timeout_s = parse.integer(
            fields, "timeout", minimum=limits.timeout_min_s, maximum=limits.timeout_max_s
        )
        order = parse.boolean(fields, "order", default=False)
    except (MalformedName, LogHubError) as error:
        raise failure(Code.JSON_INFO_INVALID, str(error)) from error
    store = lookup.logstore(engine, request, ls)
    groups = engine.groups.of(store.saved.id)
    if name in groups:
        raise failure(Code.CONSUMER_GROUP_ALREADY_EXIST, f"consumer group {name} already exists")
    if len(groups) >= limits.groups_per_logstore:
        raise failure(
            Code.CONSUMER_GROUP_QUOTA_EXCEED,
            f"a logstore may have at most {limits.groups_per_logstore} consumer groups",
        )
    await engine.groups.create(
        logstore=store.saved.id,
        name=name,
        timeout_s=timeout_s,
        order=order,
        shards=engine.log_shards(store),
    )
    return EMPTY


async def update_group(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """Change the settings; either may be missing (the Go client omits a timeout of 0)."""
    fields = parse.json_object(request)
    limits = engine.settings.limits
    timeout_s = order = None
    if "timeout" in fields:
        timeout_s = parse.integer(
            fields, "timeout", minimum=limits.timeout_min_s, maximum=limits.timeout_max_s
        )
    if "order" in fields:
        order = parse.boolean(fields, "order", default=False)
    group = lookup.group(engine, request, ls, cg)
    await engine.groups.apply_durably(group, Configure(timeout_s=timeout_s, order=order))
    return EMPTY


async def delete_group(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    await engine.groups.delete(lookup.group(engine, request, ls, cg))
    return EMPTY


# A group whose state has changed, and what to answer once the change and all before it are durable. An error
# has changed nothing.
Stepped = tuple[RegisteredGroup, ServiceResponse | LogHubError]


async def _answer(engine: Engine, stepped: Stepped) -> ServiceResponse:
    group, outcome = stepped
    await engine.groups.durable(group)
    if isinstance(outcome, LogHubError):
        raise outcome
    return outcome


async def heartbeat(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """Register or renew a consumer. The response is always a JSON array, because the Python client retries
    without a pause on anything else (docs/sls-protocol.md 4.5)."""
    return await _answer(engine, step_heartbeat(engine, request, ls=ls, cg=cg))


def step_heartbeat(engine: Engine, request: Request, *, ls: str, cg: str) -> Stepped:
    """`heartbeat` without its wait for the disk. What it raises has changed nothing."""
    consumer = parse.consumer(request)
    held = parse.shard_list(request)
    group = lookup.group(engine, request, ls, cg)
    consumers = group.state.consumers
    maximum = engine.settings.limits.consumers_per_group
    if consumer not in consumers and len(consumers) >= maximum:
        raise failure(Code.PROJECT_QUOTA_EXCEED, f"a group may have at most {maximum} consumers")
    step = engine.groups.apply(group, Heartbeat(consumer=consumer, held=held))
    if step.refusal is None:
        return group, json_response(step.answer)
    message = f"group {cg} does not know consumer {consumer!r}, which must first give up its shards"
    return group, _refused(step.refusal, request, f"{message} and send a heartbeat that reports none")


async def update_checkpoint(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """Serve ``type=checkpoint``; ``type=heartbeat`` on the same path is `heartbeat`."""
    if request.query.get("type") != "checkpoint":
        raise failure(Code.PARAMETER_INVALID, "type must be heartbeat or checkpoint")
    return await _answer(engine, step_checkpoint(engine, request, ls=ls, cg=cg))


def step_checkpoint(engine: Engine, request: Request, *, ls: str, cg: str) -> Stepped:
    """`update_checkpoint` without its wait for the disk. What it raises has changed nothing."""
    fields = parse.json_object(request)
    consumer = request.query.get("consumer", "")
    shard = parse.integer(fields, "shard", minimum=0, maximum=1 << 31)
    group = lookup.group(engine, request, ls, cg)
    event = SaveCheckpoint(
        consumer=names.CONSUMER.check(consumer) if consumer else "",
        shard=shard,
        cursor=_position(engine, group, shard, parse.string(fields, "checkpoint")),
        force=request.query.get("forceSuccess", "").lower() == "true",
        updated_unix_us=engine.now_us(),
    )
    return group, _save(engine, request, group, event) or EMPTY


async def save_checkpoints(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """Extension: save the checkpoints of several shards of one consumer, each as `update_checkpoint` does
    without force. The response lists the rejected ones."""
    consumer = parse.consumer(request)
    texts = parse.cursors_of_shards(request)
    group = lookup.group(engine, request, ls, cg)
    rejected = []
    for shard, text in sorted(texts.items()):
        try:
            refusal = _save(
                engine,
                request,
                group,
                SaveCheckpoint(
                    consumer=consumer,
                    shard=shard,
                    cursor=_position(engine, group, shard, text),
                    force=False,
                    updated_unix_us=engine.now_us(),
                ),
            )
        except LogHubError as error:
            refusal = error
        if refusal is not None:
            rejected.append(_rejected(shard, refusal))
    await engine.groups.durable(group)
    return json_response({"rejected": rejected})


def _rejected(shard: int, error: LogHubError) -> dict[str, object]:
    return {
        "shard": shard,
        "status": int(error.status),
        "errorCode": error.code,
        "errorMessage": error.message,
    }


def _save(
    engine: Engine, request: Request, group: RegisteredGroup, event: SaveCheckpoint
) -> LogHubError | None:
    """Save a checkpoint, which is not durable yet on return. Returns the error if the checkpoint is
    rejected."""
    step = engine.groups.apply(group, event)
    if step.refusal is None:
        return None
    message = f"checkpoint of shard {event.shard} by consumer {event.consumer!r} was rejected"
    return _refused(step.refusal, request, message)


def _position(engine: Engine, group: RegisteredGroup, shard: int, text: str) -> int:
    """The integer value of a cursor that may be saved.

    A cursor beyond the end is invalid: on a read-only shard it would count as the end, and unread logs as
    consumed. A cursor below the oldest group is valid, since slow consumers have such cursors.
    """
    log = engine.logs.get((group.logstore, shard))
    try:
        return wire_cursor.decode(text) if log is None else check_cursor(log, text)
    except (MalformedCursor, LogHubError) as error:
        raise failure(Code.INVALID_SHARD_CHECK_POINT, str(error)) from error


def _refused(refusal: RefusalCode, request: Request, message: str) -> LogHubError:
    error = failure(Code(refusal.value), message)
    if refusal is RefusalCode.SHARD_NOT_EXIST:
        error.status = HTTPStatus.NOT_FOUND  # for this call only (docs/sls-protocol.md 2.4)
        error.code = errors.checkpoint_of_no_shard(request.headers.get("user-agent", ""))
    return error


async def get_checkpoints(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """The checkpoints of all shards, or of one shard. A shard without a checkpoint has an entry too, as the
    Java and Python clients require (docs/sls-protocol.md 2.1)."""
    group = lookup.group(engine, request, ls, cg)
    await engine.groups.durable(group)
    entries = [entry for _, entry in sorted(group.state.shards.items())]
    if "shard" in request.query:
        number = parse.number_query(request, "shard", minimum=0, maximum=1 << 31)
        entries = [entry for entry in entries if entry.shard == number]
    return json_response([_checkpoint(entry) for entry in entries])


def _checkpoint(entry: ShardEntry) -> dict[str, object]:
    saved = entry.checkpoint
    return {
        "shard": entry.shard,
        "checkpoint": wire_cursor.encode(saved.cursor) if saved else "",
        "updateTime": saved.updated_unix_us if saved else 0,
        "consumer": saved.consumer if saved else "",
    }
