"""Copies a topic with Spark's own Kafka source and sink: as a stream with a checkpoint, then as a batch.

The first line of its input is a JSON object: ``servers``, ``user``, ``password``; ``from``, ``streamed`` and
``batched``, three topics; ``checkpoint``, a folder; ``perBatch``, the offsets of a micro-batch; ``conf``,
Spark's settings.
"""

import json
import sys

from pyspark.sql import SparkSession

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    session = SparkSession.builder.master("local[2]").config(map=settings["conf"]).getOrCreate()
    quoted = settings["password"].replace("\\", "\\\\").replace('"', '\\"')
    servers = {
        "kafka.bootstrap.servers": settings["servers"],
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{LOGIN} required username="{settings["user"]}" password="{quoted}";',
    }
    source = {**servers, "subscribe": settings["from"], "startingOffsets": "earliest"}
    stream = session.readStream.format("kafka").options(**source)
    rows = stream.option("maxOffsetsPerTrigger", settings["perBatch"]).load().select("value")
    copy = rows.writeStream.format("kafka").options(**servers, topic=settings["streamed"])
    copy.option("checkpointLocation", settings["checkpoint"]).trigger(
        availableNow=True
    ).start().awaitTermination()
    rows = session.read.format("kafka").options(**source, minPartitions=8).load().select("value")
    rows.write.format("kafka").options(**servers, topic=settings["batched"]).save()
    session.stop()


if __name__ == "__main__":
    main()
