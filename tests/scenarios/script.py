"""The language of the scenario files: a sequence of events of one consumer group, written as commands.

A file opens with a sentence of intent (lines with ``#``). Then come blocks: one command a line, a
line of four dashes, and what the commands print, up to a blank line. Commands::

    group shards=0,1 timeout=30 order=false     a new group; first of all
    heartbeat a 0 1     consumer a sends a heartbeat that reports shards 0 and 1
    leave a             a leaves the group
    checkpoint a 0 7 [force]                    a saves cursor 7 of shard 0; - is no consumer
    advance 10          ten seconds pass; the group is not informed yet
    tick                the service applies a tick
    add 2 parents=0     the logstore has a new shard; the group is not informed yet
    close 0 end=5 [begin=5]                     a shard becomes read-only, or its begin moves
    delete 0            the logstore no longer has the shard
    report              the group is informed of the current shards
    configure [timeout=60] [order=true]
    restart             the service restarts from what it persisted
    show                every shard: state, holder -> next holder
    deadline            seconds until the next consumer times out

Each prints its answer or refusal and one line a transition: shard, old -> new, trigger, holder. Where
a block has several commands, each is named before its output.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loghub.domain.coordinator import next_deadline
from loghub.domain.group import LogShard, Transition
from tests.loghub.domain.driver import Driver

DASHES = "----"


@dataclass(frozen=True)
class Block:
    """Comments and commands as written, and the output that they should have."""

    head: tuple[str, ...]
    expected: tuple[str, ...]


def parse(text: str) -> list[Block]:
    """The blocks of a file; ValueError for a block without its dashes."""
    blocks = []
    for chunk in text.strip().split("\n\n"):
        lines = chunk.strip("\n").split("\n")
        if all(line.startswith("#") for line in lines):
            blocks.append(Block(tuple(lines), ()))
            continue
        if DASHES not in lines:
            raise ValueError(f"a block without {DASHES}: {lines}")
        at = lines.index(DASHES)
        blocks.append(Block(tuple(lines[:at]), tuple(lines[at + 1 :])))
    return blocks


def render(blocks: list[Block]) -> str:
    parts = []
    for block in blocks:
        is_comment = all(line.startswith("#") for line in block.head)
        parts.append("\n".join(block.head if is_comment else (*block.head, DASHES, *block.expected)))
    return "\n\n".join(parts) + "\n"


def replay(blocks: list[Block]) -> list[Block]:
    """The same blocks with the output that the commands really have."""
    scenario = Scenario()
    return [Block(block.head, tuple(_output(scenario, block.head))) for block in blocks]


def _output(scenario: "Scenario", head: tuple[str, ...]) -> list[str]:
    commands = [line for line in head if not line.startswith("#")]
    lines = []
    for command in commands:
        lines += [f"> {command}"] if len(commands) > 1 else []
        lines += scenario.run(command)
    return lines


class Scenario:
    """Runs commands against one `Driver`."""

    def __init__(self) -> None:
        self.driver = Driver(0)

    def run(self, line: str) -> list[str]:
        """What one command prints."""
        command, *arguments = line.split()
        positional = [w for w in arguments if "=" not in w]
        options = dict(w.split("=", 1) for w in arguments if "=" in w)
        run: Callable[[list[str], dict[str, str]], list[str]] = getattr(self, f"do_{command}")
        return run(positional, options)

    def _transition_lines(self) -> list[str]:
        return [transition_line(p) for p in self.driver.last.transitions]

    def do_group(self, _: list[str], options: dict[str, str]) -> list[str]:
        shards = tuple(LogShard(shard=int(s)) for s in options["shards"].split(","))
        self.driver = Driver(shards, timeout_s=float(options["timeout"]), order=options["order"] == "true")
        return self._transition_lines()

    def do_heartbeat(self, arguments: list[str], _: dict[str, str]) -> list[str]:
        answer = self.driver.heartbeat(arguments[0], *map(int, arguments[1:]))
        refusal = self.driver.last.refusal
        line = f"refused: {refusal}" if refusal else f"answer: {' '.join(map(str, answer)) or 'none'}"
        return [line, *self._transition_lines()]

    def do_leave(self, arguments: list[str], _: dict[str, str]) -> list[str]:
        self.driver.leave(arguments[0])
        return self._transition_lines()

    def do_checkpoint(self, arguments: list[str], _: dict[str, str]) -> list[str]:
        consumer = "" if arguments[0] == "-" else arguments[0]
        force = arguments[3:] == ["force"]
        refusal = self.driver.checkpoint(consumer, int(arguments[1]), int(arguments[2]), force=force)
        return [f"refused: {refusal}" if refusal else "saved", *self._transition_lines()]

    def do_advance(self, arguments: list[str], _: dict[str, str]) -> list[str]:
        self.driver.advance(float(arguments[0]))
        return []

    def do_tick(self, _: list[str], __: dict[str, str]) -> list[str]:
        self.driver.tick()
        return self._transition_lines()

    def do_add(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        parents = tuple(int(p) for p in options.get("parents", "").split(",") if p)
        self.driver.put_shard(int(arguments[0]), parents=parents)
        return []

    def do_close(self, arguments: list[str], options: dict[str, str]) -> list[str]:
        self.driver.close_shard(
            int(arguments[0]), begin=int(options.get("begin", "0")), end=int(options["end"])
        )
        return []

    def do_delete(self, arguments: list[str], _: dict[str, str]) -> list[str]:
        self.driver.delete_shard(int(arguments[0]))
        return []

    def do_report(self, _: list[str], __: dict[str, str]) -> list[str]:
        self.driver.report_shards()
        return self._transition_lines()

    def do_configure(self, _: list[str], options: dict[str, str]) -> list[str]:
        timeout, order = options.get("timeout"), options.get("order")
        self.driver.configure(
            timeout_s=None if timeout is None else float(timeout),
            order=None if order is None else order == "true",
        )
        return self._transition_lines()

    def do_restart(self, _: list[str], __: dict[str, str]) -> list[str]:
        self.driver.restart()
        return self._transition_lines()

    def do_show(self, _: list[str], __: dict[str, str]) -> list[str]:
        live = " ".join(self.driver.state.consumers) or "none"
        return [
            f"consumers: {live}",
            *(f"{shard}: {self.driver.line(shard)}" for shard in self.driver.state.shards),
        ]

    def do_deadline(self, _: list[str], __: dict[str, str]) -> list[str]:
        deadline = next_deadline(self.driver.state)
        return ["deadline: none" if deadline is None else f"deadline: in {deadline - self.driver.now:g} s"]


def transition_line(passage: Transition) -> str:
    """One transition as a story tells it."""
    holders = f" {passage.holder}" if passage.holder else ""
    if passage.next_holder:
        holders += f" -> {passage.next_holder}"
    return f"{passage.shard}: {passage.old or 'new'} -> {passage.new} {passage.trigger}{holders}"
