"""A Kafka client as a program: it reads one JSON command a line, and prints one JSON object a line.

The first argument names the library: ``confluent``, ``kafka-python`` or ``aiokafka``. Programs in other
languages have the same commands, so that one scenario drives them all.

``{"do": "open", "servers": .., "user": .., "password": .., "ca": .., "group": .., "autoCommit": ..,
"instance": .., "assignor": .., "reset": .., "codec": .., "sessionS": .., "lingerMs": ..}``
    The first command. Empty strings stand for what is not given. Assignors are separated by commas, the
    preferred one first. Less than ``lingerMs`` after the last one, records share a batch, and the end of a
    command sends what has waited.
``{"do": "produce", "topic": .., "records": [[partition, key, value], ..]}``
    Waits until all are acknowledged; a partition of -1 is the library's choice. Answers
    ``{"done": "produce", "failed": number}``.
``{"do": "subscribe", "topics": [..]}``, ``{"do": "assign", "places": [[topic, partition, offset], ..]}``
    From then on prints ``{"records": [[topic, partition, offset, key, value], ..]}``, and
    ``{"assigned": [[topic, partition], ..]}`` whenever the assignment changes. An offset of -2 is the begin.
``{"do": "pause", "places": [[topic, partition], ..]}``, ``{"do": "resume", "places": ..}``
    Nothing of a paused partition is printed until it is resumed.
``{"do": "commit"}``, ``{"do": "committed", "places": [[topic, partition], ..]}``,
``{"do": "seek", "place": [topic, partition, offset]}``, ``{"do": "times", "places": [[t, p, ms], ..]}``,
``{"do": "ends", "places": [[topic, partition], ..]}``, ``{"do": "process", "seconds": ..}``,
``{"do": "close"}``
    Each is answered with ``{"done": .., ..}``; ``committed``, ``times`` and ``ends`` with ``"offsets"``.
    ``process`` stands for work with what was read: nothing is polled meanwhile.
"""

import json
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Any, Protocol

Command = dict[str, Any]
Found = list[list[Any]]


class Library(Protocol):
    """What each library offers."""

    def produce(self, topic: str, records: list[list[Any]]) -> int: ...
    def subscribe(self, topics: list[str]) -> None: ...
    def assign(self, places: list[list[Any]]) -> None: ...
    def poll(self, timeout_s: float) -> Found: ...
    def assignment(self) -> list[list[Any]]: ...
    def commit(self) -> None: ...
    def committed(self, places: list[list[Any]]) -> list[int]: ...
    def seek(self, topic: str, partition: int, offset: int) -> None: ...
    def pause(self, places: list[list[Any]]) -> None: ...
    def resume(self, places: list[list[Any]]) -> None: ...
    def times(self, places: list[list[Any]]) -> list[int]: ...
    def ends(self, places: list[list[Any]]) -> list[list[int]]: ...
    def close(self) -> None: ...


def say(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def library_of(name: str, settings: Command) -> Library:
    if name == "confluent":
        from confluent_library import ConfluentLibrary

        return ConfluentLibrary(settings)
    if name == "kafka-python":
        from kafka_python_library import KafkaPythonLibrary

        return KafkaPythonLibrary(settings)
    from aiokafka_library import AiokafkaLibrary

    return AiokafkaLibrary(settings)


def serve(library: Library, commands: "SimpleQueue[Command]") -> None:
    polling, assigned = False, []
    while True:
        try:
            command = commands.get(block=not polling)
        except Empty:
            found = library.poll(0.1)
            now = sorted(library.assignment())
            if now != assigned:
                assigned = now
                say({"assigned": assigned})
            if found:
                say({"records": found})
            continue
        polling = polling or command["do"] in ("subscribe", "assign")
        say({"done": command["do"], **carry_out(library, command)})
        if command["do"] == "close":
            return


def carry_out(library: Library, command: Command) -> dict[str, Any]:
    match command["do"]:
        case "produce":
            return {"failed": library.produce(command["topic"], command["records"])}
        case "subscribe":
            library.subscribe(command["topics"])
        case "assign":
            library.assign(command["places"])
        case "commit":
            library.commit()
        case "committed":
            return {"offsets": library.committed(command["places"])}
        case "seek":
            library.seek(*command["place"])
        case "pause":
            library.pause(command["places"])
        case "resume":
            library.resume(command["places"])
        case "times":
            return {"offsets": library.times(command["places"])}
        case "ends":
            return {"offsets": library.ends(command["places"])}
        case "process":
            time.sleep(command["seconds"])
        case "close":
            library.close()
    return {}


def main() -> None:
    commands: SimpleQueue[Command] = SimpleQueue()
    settings = json.loads(sys.stdin.readline())

    def read() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))

    threading.Thread(target=read, daemon=True).start()
    library = library_of(sys.argv[1], settings)
    say({"done": "open"})
    serve(library, commands)


if __name__ == "__main__":
    main()
