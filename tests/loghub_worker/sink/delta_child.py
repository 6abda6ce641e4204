"""A worker with a Delta sink as a process of its own, without Spark and without a log service.

It believes that it holds both shards, like any other one of its kind, and delivers random ranges to their
ends. The checkpoint of a shard is a file, which is saved now and then.

Run: ``python -m tests.loghub_worker.sink.delta_child FOLDER NAME STEP N`` kills itself at the N-th time of
STEP (``-`` for never). With the variables TABLE_URL, TABLE_ENDPOINT and TABLE_KEYS the table is in a bucket.
It prints how many batches were committed and how many refused.
"""

import os
import random
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from loghub.contract.sinks import S3Settings
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.files.commit_log import RangeTakenError
from tests.loghub_worker.sink.delta_tables import opened, rows, table_sink

BEGIN, END, SHARDS = 100, 150, (0, 1)
LONGEST = 12  # log groups of a range


def incarnation(shard: int) -> ShardIncarnation:
    return ShardIncarnation(shard=shard, created=1)


def bucket() -> dict[str, Any]:
    settings = S3Settings(endpoint=os.environ["TABLE_ENDPOINT"], allow_http=True)
    return {"s3": settings, "keys": Path(os.environ["TABLE_KEYS"])}


def main(folder: str, name: str, step: str, nth: str) -> None:
    seen = 0

    def at_step(reached: str) -> None:
        nonlocal seen
        seen += reached == step
        if reached == step and seen == int(nth):
            os.kill(os.getpid(), signal.SIGKILL)

    root, chance = Path(folder), random.Random(name)
    sink = table_sink(
        os.environ.get("TABLE_URL", str(root / "table")),
        root / name,
        name=name,
        at_step=at_step,
        **(bucket() if "TABLE_URL" in os.environ else {}),
    )

    def position(shard: int) -> int:
        saved = root / f"checkpoint-{shard}"
        checkpoint = int(saved.read_text()) if saved.exists() else BEGIN
        return opened(sink, checkpoint, shard=incarnation(shard))

    positions = {shard: position(shard) for shard in SHARDS}
    won = refused = 0
    while any(at < END for at in positions.values()):
        ranges = tuple(
            Range(shard, at, min(END, at + chance.randint(1, LONGEST)))
            for shard, at in positions.items()
            if at < END and chance.random() < 0.8
        )
        if not ranges:
            continue
        batch = f"{name}-{secrets.token_hex(8)}"
        sink.write(pa.concat_tables([rows(r.shard, r.begin, r.end) for r in ranges]), batch)
        try:
            sink.publish(batch, ranges, lambda: True)
        except RangeTakenError:
            refused += 1
            positions |= {r.shard: position(r.shard) for r in ranges}
            continue
        won += 1
        positions |= {r.shard: r.end for r in ranges}
        for shard_range in ranges:
            if chance.random() < 0.3:
                part = root / f"{name}-part"
                part.write_text(str(shard_range.end))
                part.rename(root / f"checkpoint-{shard_range.shard}")
    print(won, refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
