"""The user's code by its names: the factory of processors, and the listener."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loghub_worker.consumer.fan_out import FanOutFactory
from loghub_worker.consumer.processor import Listener, Processor, ProcessorFactory, ShardControl
from loghub_worker.fatal_error import FatalError
from loghub_worker.user_code import import_named, user_message


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingWords:
    """What settings are called where the user writes them."""

    acknowledge_by_log: str
    ack_timeout: str


OF_OBJECT = SettingWords(
    acknowledge_by_log="pipeline.processor.acknowledge: Log",
    ack_timeout="pipeline.processor.redelivery.ackTimeoutSeconds",
)
OF_PROGRAM = SettingWords(
    acknowledge_by_log="ConsumerSettings.acknowledge to 'log'", ack_timeout="ConsumerSettings.ack_timeout_s"
)


def load_factory(
    name: str,
    folder: Path | None,
    words: SettingWords = OF_OBJECT,
    *,
    by_log: bool = False,
    times_out: bool = False,
) -> ProcessorFactory:
    """The class or function that ``module:name`` names. Raises `FatalError` ``InvalidPipeline``."""
    factory = import_named(name, folder)
    if isinstance(factory, FanOutFactory) and not by_log:
        raise FatalError(
            "InvalidPipeline",
            f"{name} is made by fan_out, whose threads end after process has returned; set"
            f" {words.acknowledge_by_log}",
        )
    if isinstance(factory, FanOutFactory) and times_out:
        raise FatalError(
            "InvalidPipeline",
            f"{name} is made by fan_out, which keeps each log until handle has returned; leave out"
            f" {words.ack_timeout}, with which it would come again meanwhile",
        )
    if isinstance(factory, type) and not issubclass(factory, Processor):
        raise FatalError(
            "InvalidPipeline", f"{name}: the class is not derived from loghub_worker.api.Processor"
        )
    if not callable(factory):
        raise FatalError(
            "InvalidPipeline",
            f"{name} is neither a class nor a function but {type(factory).__name__}; name a class derived"
            " from loghub_worker.api.Processor, or a function that returns such an object",
        )
    missing: frozenset[str] = getattr(factory, "__abstractmethods__", frozenset())
    if missing:
        raise FatalError("InvalidPipeline", f"{name}: the class does not define {', '.join(sorted(missing))}")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise FatalError("InvalidPipeline", f"{name} must take no arguments: {error}") from error
    except ValueError:
        pass  # a callable without a known signature
    checked: ProcessorFactory = factory
    return checked


def load_listener(name: str, folder: Path | None, shards: ShardControl) -> Listener:
    """What the class or function that ``module:name`` names makes of the shards of this process. Raises
    `FatalError` ``InvalidPipeline``."""
    make: Any = import_named(name, folder)
    if not callable(make):
        raise FatalError(
            "InvalidPipeline",
            f"{name} is neither a class nor a function; name a class derived from"
            " loghub_worker.api.Listener that takes the shards of the process as its argument",
        )
    try:
        listener = make(shards)
    except Exception as error:
        raise FatalError("InvalidPipeline", f"{name}: {user_message(error, folder)}") from error
    if not isinstance(listener, Listener):
        kind = type(listener).__name__
        raise FatalError("InvalidPipeline", f"{name} made {kind}, not a loghub_worker.api.Listener")
    return listener
