"""The family tree of shards as text."""

from loghub_cli.output import Format, render
from loghub_cli.plugin.family import family_rows
from tests.loghub_cli.plugin.objects import AT_UNIX_S, group, shard

# 0 is split into 2 and 3, which are merged into 5; 1 into 4, whose child is 6.
SHARDS = [
    shard(0, state="over", readOnly=True),
    shard(1, state="over", readOnly=True),
    shard(2, "access-0", readOnly=True, parents=[0]),
    shard(3, "access-1", readOnly=True, parents=[0]),
    shard(4, parents=[1], state="over"),
    shard(5, state="wait", parents=[2, 3]),
    shard(6, "access-0", state="transfer", nextConsumer="access-1", parents=[4]),
]


def test_a_shard_stands_below_the_one_it_was_made_from() -> None:
    rows = family_rows(group(shards=SHARDS), now_unix_s=AT_UNIX_S, tree=True)
    assert [row["shard"] for row in rows] == ["0", "├─ 2", "│  └─ 5", "└─ 3", "1", "└─ 4", "   └─ 6"]
    assert [row["from"] for row in rows if row["shard"] == "│  └─ 5"] == [[2, 3]]
    lines = render(rows, Format.TABLE).splitlines()
    assert (
        len({line.find(state) for line, state in zip(lines[1:3], ("over", "already_alloc"), strict=True)})
        == 1
    )


def test_without_a_tree_the_shards_are_in_order() -> None:
    rows = family_rows(group(shards=SHARDS[::-1]), now_unix_s=AT_UNIX_S, tree=False)
    assert [row["shard"] for row in rows] == [str(number) for number in range(7)]


def test_a_parent_that_is_gone_or_a_circle_loses_no_shard() -> None:
    shards = [shard(3, parents=[1]), shard(4, parents=[5]), shard(5, parents=[4])]
    rows = family_rows(group(shards=shards), now_unix_s=AT_UNIX_S, tree=True)
    assert [row["shard"] for row in rows] == ["3", "4", "└─ 5"]
