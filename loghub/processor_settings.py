"""A pipeline without Spark, a part of `loghub.worker_contract.WorkerConfig`.

Its rules for what may change between releases hold here too.
"""

import msgspec


class ProcessorPipeline(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="processor"
):
    """A class derived from `loghub_worker.api.Processor`, or a function that returns such an object. It runs
    without Spark, in processes of the worker, and the sink is `NoSink`. `files` and `folder` are as in
    `loghub.worker_contract.PythonPipeline`. A batch is complete with `max_logs` logs or `max_bytes` bytes, or
    `max_wait_s` after its first log group arrived.
    """

    factory: str  # module:name
    files: dict[str, str] = {}
    folder: str | None = None
    processes: int = 1  # 0: one for each core
    max_logs: int | None = None
    max_bytes: int = 4 << 20
    max_wait_s: float = 0.0
