import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.RedeliveryBackoff;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.MultiplierRedeliveryBackoff;

/** A consumer, or a reader, which has fewer commands. */
class Consuming implements Program.Named {
    static final int GUARD_MS = 120_000;
    static final int SHOWN_BYTES = 4096;

    final Consumer<byte[]> consumer;
    final Reader<byte[]> reader;
    final Map<Integer, Message<byte[]>> held = new HashMap<>();
    int last;

    Consuming(Consumer<byte[]> consumer, Reader<byte[]> reader) {
        this.consumer = consumer;
        this.reader = reader;
    }

    static Consuming reader(PulsarClient client, JsonNode command) throws Exception {
        ReaderBuilder<byte[]> builder = client.newReader()
                .topic(command.get("topic").asText())
                .startMessageId(Program.idFrom(command.get("start").asText()));
        if (command.path("inclusive").asBoolean()) {
            builder.startMessageIdInclusive();
        }
        return new Consuming(null, builder.create());
    }

    static Consuming subscribed(PulsarClient client, JsonNode command) throws Exception {
        ConsumerBuilder<byte[]> builder = client.newConsumer()
                .subscriptionName(command.get("subscription").asText())
                .subscriptionType(SubscriptionType.valueOf(command.path("type").asText("Exclusive")))
                .enableBatchIndexAcknowledgment(command.path("indexAck").asBoolean())
                .isAckReceiptEnabled(command.path("receipts").asBoolean())
                .enableRetry(command.path("retry").asBoolean());
        if (command.path("earliest").asBoolean()) {
            builder.subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
        }
        topics(builder, command);
        if (command.has("name")) {
            builder.consumerName(command.get("name").asText());
        }
        if (!command.path("durable").asBoolean(true)) {
            builder.subscriptionMode(SubscriptionMode.NonDurable);
        }
        if (command.path("inclusive").asBoolean()) {
            builder.startMessageIdInclusive();
        }
        if (command.has("priority")) {
            builder.priorityLevel(command.get("priority").asInt());
        }
        if (command.has("ranges")) {
            builder.keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(ranges(command.get("ranges"))));
        }
        if (command.path("type").asText().equals("Failover")) {
            builder.consumerEventListener(new Listener(command.get("of").asText()));
        }
        flow(builder, command);
        redelivery(builder, command);
        return new Consuming(builder.subscribe(), null);
    }

    static void topics(ConsumerBuilder<byte[]> builder, JsonNode command) {
        if (command.has("pattern")) {
            builder.topicsPattern(command.get("pattern").asText());
        } else if (command.has("topics")) {
            command.get("topics").forEach(topic -> builder.topic(topic.asText()));
        } else {
            builder.topic(command.get("topic").asText());
        }
        if (command.has("discoveryS")) {
            int seconds = command.get("discoveryS").asInt();
            builder.patternAutoDiscoveryPeriod(seconds, TimeUnit.SECONDS)
                    .autoUpdatePartitionsInterval(seconds, TimeUnit.SECONDS);
        }
    }

    static List<Range> ranges(JsonNode rows) {
        List<Range> found = new ArrayList<>();
        rows.forEach(row -> found.add(Range.of(row.get(0).asInt(), row.get(1).asInt())));
        return found;
    }

    static void flow(ConsumerBuilder<byte[]> builder, JsonNode command) {
        if (command.has("queue")) {
            builder.receiverQueueSize(command.get("queue").asInt());
        }
        if (command.has("groupMs")) {
            builder.acknowledgmentGroupTime(command.get("groupMs").asInt(), TimeUnit.MILLISECONDS);
        }
        if (command.has("batchReceive")) {
            JsonNode batch = command.get("batchReceive");
            builder.batchReceivePolicy(BatchReceivePolicy.builder()
                    .maxNumMessages(batch.get("max").asInt())
                    .maxNumBytes(batch.get("bytes").asInt())
                    .timeout(batch.get("ms").asInt(), TimeUnit.MILLISECONDS)
                    .build());
        }
        if (command.has("maxChunked")) {
            builder.maxPendingChunkedMessage(command.get("maxChunked").asInt());
        }
        builder.autoAckOldestChunkedMessageOnQueueFull(command.path("ackChunked").asBoolean());
    }

    static void redelivery(ConsumerBuilder<byte[]> builder, JsonNode command) {
        if (command.has("ackTimeoutMs")) {
            builder.ackTimeout(command.get("ackTimeoutMs").asInt(), TimeUnit.MILLISECONDS)
                    .ackTimeoutTickTime(100, TimeUnit.MILLISECONDS);
        }
        if (command.has("nackMs")) {
            builder.negativeAckRedeliveryDelay(command.get("nackMs").asInt(), TimeUnit.MILLISECONDS);
        }
        if (command.has("backoffMs")) {
            RedeliveryBackoff backoff = MultiplierRedeliveryBackoff.builder()
                    .minDelayMs(command.get("backoffMs").get(0).asInt())
                    .maxDelayMs(command.get("backoffMs").get(1).asInt())
                    .multiplier(2)
                    .build();
            builder.negativeAckRedeliveryBackoff(backoff);
        }
        if (command.has("deadLetter")) {
            JsonNode dead = command.get("deadLetter");
            builder.deadLetterPolicy(DeadLetterPolicy.builder()
                    .maxRedeliverCount(dead.get("max").asInt())
                    .deadLetterTopic(dead.path("topic").asText(null))
                    .retryLetterTopic(dead.path("retryTopic").asText(null))
                    .initialSubscriptionName(dead.path("subscription").asText(null))
                    .build());
        }
    }

    record Listener(String name) implements ConsumerEventListener {
        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            Program.say(Map.of("active", true, "of", name, "partition", partition));
        }

        @Override
        public void becameInactive(Consumer<?> consumer, int partition) {
            Program.say(Map.of("active", false, "of", name, "partition", partition));
        }
    }

    /** Receives so many messages and acknowledges each, or all so far after every so many. */
    void drain(int count, int ackEvery) throws Exception {
        for (int number = 1; number <= count; number++) {
            Message<byte[]> message = consumer.receive(GUARD_MS, TimeUnit.MILLISECONDS);
            if (message == null) {
                throw new IllegalStateException(number + " of " + count + " did not come");
            }
            if (ackEvery == 0) {
                consumer.acknowledgeAsync(message);
            } else if (number % ackEvery == 0) {
                consumer.acknowledgeCumulativeAsync(message);
            }
        }
    }

    @Override
    public Map<String, Object> carryOut(String name, JsonNode command) throws Exception {
        switch (name) {
            case "receive":
                return Map.of("messages", receive(command));
            case "receiveBatch":
                List<Object> messages = new ArrayList<>();
                for (Message<byte[]> message : consumer.batchReceive()) {
                    messages.add(kept(message));
                }
                return Map.of("messages", messages);
            case "ack":
                for (JsonNode number : command.get("messages")) {
                    consumer.acknowledge(held.remove(number.asInt()));
                }
                return Map.of();
            case "nack":
                command.get("messages").forEach(number -> consumer.negativeAcknowledge(held.remove(number.asInt())));
                return Map.of();
            case "drain":
                drain(command.get("count").asInt(), command.path("ackEvery").asInt());
                return Map.of();
            case "ackCumulative":
                consumer.acknowledgeCumulative(held.get(command.get("message").asInt()));
                return Map.of();
            case "reconsume":
                Message<byte[]> later = held.remove(command.get("message").asInt());
                consumer.reconsumeLater(later, command.get("delayMs").asLong(), TimeUnit.MILLISECONDS);
                return Map.of();
            case "redeliver":
                consumer.redeliverUnacknowledgedMessages();
                return Map.of();
            case "unsubscribe":
                consumer.unsubscribe(command.path("force").asBoolean());
                return Map.of();
            default:
                return position(name, command);
        }
    }

    Map<String, Object> position(String name, JsonNode command) throws Exception {
        switch (name) {
            case "seek":
                seek(command.get("to"));
                return Map.of();
            case "lastId":
                return Map.of("last", Program.idOf((reader == null ? consumer.getLastMessageIds()
                        : reader.getLastMessageIds()).get(0)));
            case "hasNext":
                return Map.of("next", reader.hasMessageAvailable());
            case "close":
                if (reader == null) {
                    consumer.close();
                } else {
                    reader.close();
                }
                return Map.of();
            default:
                throw new IllegalArgumentException("a consumer cannot " + name);
        }
    }

    void seek(JsonNode to) throws Exception {
        if (to.isNumber() && reader == null) {
            consumer.seek(to.asLong());
        } else if (to.isNumber()) {
            reader.seek(to.asLong());
        } else if (reader == null) {
            consumer.seek(Program.idFrom(to.asText()));
        } else {
            reader.seek(Program.idFrom(to.asText()));
        }
    }

    List<Object> receive(JsonNode command) throws Exception {
        long until = System.currentTimeMillis() + command.path("withinMs").asInt(GUARD_MS);
        List<Object> messages = new ArrayList<>();
        while (messages.size() < command.path("count").asInt(1)) {
            int left = (int) Math.max(1, until - System.currentTimeMillis());
            Message<byte[]> message = reader == null
                    ? consumer.receive(left, TimeUnit.MILLISECONDS)
                    : reader.readNext(left, TimeUnit.MILLISECONDS);
            if (message == null) {
                break;
            }
            messages.add(kept(message));
        }
        return messages;
    }

    Map<String, Object> kept(Message<byte[]> message) throws Exception {
        held.put(++last, message);
        Map<String, Object> shown = new HashMap<>();
        shown.put("n", last);
        shown.put("id", Program.idOf(message.getMessageId()));
        shown.put("partition", ((MessageIdAdv) message.getMessageId()).getPartitionIndex());
        shown.put("topic", message.getTopicName());
        shown.put("value", shown(message.getValue()));
        shown.put("key", message.getKey());
        shown.put("orderingKey", message.hasOrderingKey()
                ? new String(message.getOrderingKey(), StandardCharsets.UTF_8) : null);
        shown.put("properties", message.getProperties());
        shown.put("publishMs", message.getPublishTime());
        shown.put("eventMs", message.getEventTime());
        shown.put("redeliveries", message.getRedeliveryCount());
        shown.put("producer", message.getProducerName());
        return shown;
    }

    static String shown(byte[] payload) throws Exception {
        if (payload == null || payload.length <= SHOWN_BYTES) {
            return payload == null ? null : new String(payload, StandardCharsets.UTF_8);
        }
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(payload);
        return "sha256:" + HexFormat.of().formatHex(digest) + ":" + payload.length;
    }
}
