"""The shards of a group as the family that splits and merges made of them. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from loghub_cli.group_view import Document, age, status_of
from loghub_cli.output import Record


def family_rows(document: Document, *, now_unix_s: float, tree: bool) -> list[Record]:
    """One row for each shard; in a ``tree`` a shard stands below the one it was made from. A merged shard
    stands below the first of its parents, and ``from`` names all."""
    shards = sorted(status_of(document).get("shards") or (), key=lambda shard: int(shard["id"]))
    if not tree:
        return [_row(shard, str(shard["id"]), now_unix_s=now_unix_s) for shard in shards]
    return [_row(shard, branch, now_unix_s=now_unix_s) for branch, shard in _branches(shards)]


def _branches(shards: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    by_id = {shard["id"]: shard for shard in shards}
    children: dict[int | None, list[Document]] = {}
    for shard in shards:
        # Only a parent with a lower id: a status that says otherwise must not lead round in a circle.
        known = [one for one in shard.get("parents") or () if one in by_id and one < shard["id"]]
        children.setdefault(min(known, default=None), []).append(shard)
    yield from _below(children, None, "")


def _below(
    children: Mapping[int | None, Sequence[Document]], parent: int | None, indent: str
) -> Iterator[tuple[str, Document]]:
    family = children.get(parent, ())
    for number, shard in enumerate(family):
        is_last = number == len(family) - 1
        if parent is None:
            yield str(shard["id"]), shard
            yield from _below(children, shard["id"], "")
        else:
            yield f"{indent}{'└─ ' if is_last else '├─ '}{shard['id']}", shard
            yield from _below(children, shard["id"], f"{indent}{'   ' if is_last else '│  '}")


def _row(shard: Document, branch: str, *, now_unix_s: float) -> Record:
    return {
        "shard": branch,
        "state": shard.get("state"),
        "readOnly": bool(shard.get("readOnly")),
        "consumer": shard.get("consumer"),
        "next": shard.get("nextConsumer"),
        "lagLogs": shard.get("lagLogs"),
        "lagSeconds": shard.get("lagSeconds"),
        "from": list(shard.get("parents") or ()),
        "since": age(shard.get("observedAt"), now_unix_s=now_unix_s),
    }
