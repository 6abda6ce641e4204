"""Writes to a logstore with the vendor's Python SDK, as `tests.compat.test_producers` describes."""

import json
import sys
from typing import Any

from aliyun.log import LogClient, LogItem, PutLogsRequest

config: dict[str, Any] = json.load(sys.stdin)


def main() -> None:
    client = LogClient(config["endpoint"], config["keyId"], config["keySecret"])
    written = []
    for name, compress in (("lz4", True), ("none", False)):
        for route, key in (("balanced", None), ("by key", config["hashKey"])):
            line = f"{name} {route}"
            item = LogItem(timestamp=1_700_000_000, contents=[("line", line)])
            client.put_logs(
                PutLogsRequest(
                    config["project"], config["logstore"], "t", "s", [item], hashKey=key, compress=compress
                )
            )
            written.append(line)
    split = client.split_shard(config["project"], config["logstore"], 0, "2" + "0" * 31)
    shards = len(split.get_shards_info())
    print(json.dumps({"written": written, "refused": {}, "shards": shards}))


if __name__ == "__main__":
    main()
