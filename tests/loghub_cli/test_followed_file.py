"""A file that grows, and what happens to it: each line arrives once, and none that nobody wrote."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loghub_cli.line_reader import MAX_RENAMED, QUIET_S, FollowedFile, LineReader, OnBadLine, Reading
from loghub_cli.log_lines import LinesOrigin
from tests.loghub_service.engines import ManualClock

LOOK_S = 0.2
READING = Reading(
    is_json=False,
    field="line",
    origin=LinesOrigin(),
    encoding="auto",
    on_bad_line=OnBadLine.SKIP,
    follow=True,
)


class Story:
    """A file of its own, followed; ``changes`` happen one at each look that finds nothing."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "a.log"
        self.folder = folder
        self.clock = ManualClock()
        self.open_at_most = 0
        self._writers: dict[str, Any] = {}

    def followed(self, *changes: Callable[[], object], from_end: bool = False) -> list[str]:
        """The lines."""
        todo = iter(changes)

        def wait() -> bool:
            self.clock.now_s += LOOK_S
            self.open_at_most = max(self.open_at_most, self._descriptors())
            change = next(todo, None)
            if change is not None:
                change()
            return change is not None

        reader = LineReader(READING, self.clock)
        chunks = FollowedFile(self.file, from_end=from_end, clock=self.clock, wait=wait).chunks()
        lines = [one for chunk in chunks for one in reader.logs_of(chunk)] + list(reader.end())
        assert self._descriptors() == 0, "every file is closed"
        return [str(one.log.contents[0][1]) for one in lines]

    def _descriptors(self) -> int:
        links = (
            os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_link(name)
        )
        return sum(link.startswith(str(self.folder)) for link in links) - len(self._writers)

    def write(self, text: str, name: str = "a.log") -> Callable[[], object]:
        """Appends to the file of this name."""
        return lambda: (self.folder / name).open("a").write(text)

    def opens(self) -> Callable[[], object]:
        """A writer opens the file, and goes on in it by `goes_on` whatever its name is."""
        return lambda: self._writers.update(one=self.file.open("a", buffering=1))

    def goes_on(self, text: str) -> Callable[[], object]:
        return lambda: self._writers["one"].write(text)

    def closes(self) -> None:
        self._writers.pop("one").close()

    def renames(self, to: str, name: str = "a.log") -> Callable[[], object]:
        return lambda: (self.folder / name).rename(self.folder / to)

    def overwrites(self, text: str) -> Callable[[], object]:
        def change() -> None:
            with self.file.open("r+") as file:
                file.truncate()
                file.write(text)

        return change

    def passes(self, seconds: float) -> Callable[[], object]:
        def change() -> None:
            self.clock.now_s += seconds

        return change


def _is_link(name: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{name}")


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    made = Story(tmp_path)
    made.file.write_text("")
    yield made
    for name in list(made._writers):
        made._writers.pop(name).close()


@pytest.mark.parametrize("reopens_after_looks", [0, 1, 20])
def test_what_a_writer_still_writes_after_a_rename_arrives(story: Story, reopens_after_looks: int) -> None:
    late = [
        change
        for n in range(reopens_after_looks)
        for change in (story.goes_on(f"late {n}\n"), story.write(f"new {n}\n"))
    ]
    lines = story.followed(
        story.opens(), story.goes_on("1\n2"), story.renames("a.log.1"), story.write("new\n"), *late,
        story.goes_on("half\nend"), story.closes, story.passes(QUIET_S),
        story.write("last\n"), story.passes(1),
    )  # fmt: skip
    looks = range(reopens_after_looks)
    old = "1\n2" + "".join(f"late {n}\n" for n in looks) + "half\nend"
    new = ["new", *(f"new {n}" for n in looks), "last"]
    assert sorted(lines) == sorted(old.splitlines() + new)


def test_a_renamed_file_is_closed_once_it_is_quiet(story: Story) -> None:
    rotation = [story.renames("a.log.1"), story.write("1\n"), story.passes(QUIET_S), story.passes(QUIET_S)]
    assert story.followed(*rotation * 5) == ["1"] * 5
    assert story.open_at_most <= 2


def test_a_storm_of_rotations_does_not_use_up_the_descriptors(story: Story) -> None:
    changes = [c for n in range(3 * MAX_RENAMED) for c in (story.renames(f"{n}"), story.write(f"{n}\n"))]
    assert story.followed(*changes) == [str(n) for n in range(3 * MAX_RENAMED)]
    assert story.open_at_most <= MAX_RENAMED + 2


def test_a_file_that_is_renamed_back_goes_on_where_it_was(story: Story) -> None:
    assert story.followed(
        story.write("1\n"), story.renames("x"), story.write("other\n"), story.renames("y"),
        story.renames("a.log", "x"), story.write("2\n"), story.passes(1),
    ) == ["1", "other", "2"]  # fmt: skip


OLD = "".join(f"old line {number}\n" for number in range(5))


@pytest.mark.parametrize(
    "new",
    [
        "n\n",
        "".join(f"new line {number}\n" for number in range(20)),  # past the old length at once
        OLD.replace("old", "new"),  # the same length
        "x" * 3 * len(OLD) + "\nend\n",
        OLD[: len(OLD) // 2] + "other\n",
    ],
    ids=["shorter", "longer", "of the same length", "one line over the old position", "the same begin"],
)
def test_a_file_that_is_overwritten_is_read_from_its_start(story: Story, new: str) -> None:
    assert (
        story.followed(story.write(OLD), story.overwrites(new), story.passes(1)) == (OLD + new).splitlines()
    )


def test_an_unfinished_line_is_not_joined_with_another_text(story: Story) -> None:
    assert story.followed(story.write("unfin"), story.overwrites("1\n"), story.passes(1)) == ["unfin", "1"]
    story.file.write_text("")
    renamed = (story.write("unfin"), story.renames("x"), story.write("1\n"), story.passes(1))
    assert story.followed(*renamed) == [
        "1",
        "unfin",
    ]


def test_a_file_that_is_emptied_below_its_writer_has_no_zeros(story: Story) -> None:
    """Without O_APPEND the writer goes on at its old position, and what is before it reads as zeros."""
    writer = story.file.open("w", buffering=1)
    story._writers["one"] = writer
    lines = story.followed(
        lambda: writer.write(OLD + "unfin"), lambda: os.truncate(story.file, 0),
        lambda: writer.write("ished\n1\n"), lambda: writer.write("2\n"),
        lambda: os.truncate(story.file, 0) or writer.write("3\n"), story.passes(1),
    )  # fmt: skip
    assert lines == [*OLD.splitlines(), "unfin", "ished", "1", "2", "3"]


def test_a_file_may_be_gone_for_a_while(story: Story) -> None:
    gone = (story.write("1\n"), story.file.unlink, story.passes(60), story.write("2\n"), story.passes(1))
    assert story.followed(*gone) == ["1", "2"]


@pytest.mark.parametrize(
    ("before", "first"), [("old\n", "new"), ("old\nunfin", "unfinnew"), ("unfin", "unfinnew")]
)
def test_a_file_is_followed_from_its_last_line(story: Story, before: str, first: str) -> None:
    story.file.write_text(before)
    assert story.followed(story.write("new\nb\n"), story.passes(1), from_end=True) == [first, "b"]


def test_it_must_exist_at_the_beginning(story: Story) -> None:
    story.file.unlink()
    with pytest.raises(FileNotFoundError):
        story.followed()
