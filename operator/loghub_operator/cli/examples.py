"""Examples in the help of each command; docs/command-line.md shows more, and what they print."""

EXAMPLES = {
    "up": (
        "loghub up -f deploy/examples/access-log.yaml --create-logstore",
        "loghub up -f group.yaml --wait-for ready --timeout 5m",
    ),
    "down": ("loghub down -f group.yaml", "loghub down --name access-log"),
    "status": ("loghub status", "loghub status access-log"),
    "serve": (
        "loghub serve --listen 127.0.0.1:8080",
        "loghub serve --kafka -- --max-shards 100",
    ),
    "project create": ('loghub project create demo --description "an example" --if-not-exists',),
    "project list": ("loghub project list -o json",),
    "project show": ("loghub project show demo",),
    "project delete": ("loghub project delete demo",),
    "logstore create": ("loghub logstore create access --shards 4 --ttl-days 30 --if-not-exists",),
    "logstore list": ("loghub logstore list --project demo",),
    "logstore show": ("loghub logstore show access",),
    "logstore delete": ("loghub logstore delete access",),
    "shard list": ("loghub shard list access",),
    "shard show": ("loghub shard show access 0",),
    "shard split": (
        "loghub shard split access 0 --into 4",
        "loghub shard split access 1 --at c0000000000000000000000000000000",
    ),
    "shard merge": ("loghub shard merge access 2",),
    "shard delete": ("loghub shard delete access 0",),
    "group create": ("loghub group create access readers --timeout 60 --if-not-exists",),
    "group list": ("loghub group list access",),
    "group show": ("loghub group show access readers",),
    "group update": ("loghub group update access readers --timeout 120",),
    "group delete": ("loghub group delete access readers",),
    "group checkpoints": ("loghub group checkpoints access readers",),
    "group set-checkpoint": (
        "loghub group set-checkpoint access readers 0 MTc5NTQyNTU3MzUwODIwOTAwMA== --force",
    ),
    "group reset": (
        "loghub group reset access readers --to 1h --dry-run",
        "loghub group reset access readers --to begin --shard 0 --shard 1",
    ),
    "put": (
        "loghub put access app.log",
        "loghub put access events.json --lines json --topic events --tag host=web-1",
        "loghub put access app.log --follow --from-end",
    ),
    "pull": (
        "loghub pull access 0 --from 10m -n 5",
        "loghub pull access 0 --from 2026-01-31T08:00:00Z --to 1h -o json",
    ),
    "tail": ("loghub tail access", "loghub tail access --from 10m --field line"),
    "lag": ("loghub lag access", "loghub lag access readers --watch"),
}
