import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/** A producer. */
class Producing implements Program.Named {
    /** For the rest of a batch, so that only its size and the end of a command close it. */
    static final int BATCH_WAIT_MS = 10_000;

    final Producer<byte[]> producer;

    Producing(PulsarClient client, JsonNode command) throws Exception {
        int batch = command.path("batch").asInt(0);
        ProducerBuilder<byte[]> builder = client.newProducer()
                .topic(command.get("topic").asText())
                .blockIfQueueFull(true)
                .enableBatching(batch > 0)
                .enableChunking(command.path("chunking").asBoolean(false))
                .compressionType(CompressionType.valueOf(command.path("codec").asText("NONE")));
        if (batch > 0) {
            int delayMs = command.path("delayMs").asInt(BATCH_WAIT_MS);
            builder.batchingMaxMessages(batch).batchingMaxPublishDelay(delayMs, TimeUnit.MILLISECONDS);
        }
        if (command.has("name")) {
            builder.producerName(command.get("name").asText());
        }
        if (command.has("access")) {
            builder.accessMode(ProducerAccessMode.valueOf(command.get("access").asText()));
        }
        if (command.has("sendTimeoutMs")) {
            builder.sendTimeout(command.get("sendTimeoutMs").asInt(), TimeUnit.MILLISECONDS);
        }
        if (command.has("discoveryS")) {
            builder.autoUpdatePartitionsInterval(command.get("discoveryS").asInt(), TimeUnit.SECONDS);
        }
        producer = builder.create();
    }

    Map<String, Object> opened() {
        return Map.of("name", producer.getProducerName(), "last", producer.getLastSequenceId());
    }

    @Override
    public Map<String, Object> carryOut(String name, JsonNode command) throws Exception {
        switch (name) {
            case "send":
                return Map.of("ids", send(command.get("messages")));
            case "close":
                producer.close();
                return Map.of();
            default:
                throw new IllegalArgumentException("a producer cannot " + name);
        }
    }

    List<Object> send(JsonNode messages) {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (JsonNode message : messages) {
            sent.add(built(message).sendAsync());
        }
        producer.flushAsync(); // Each message says what became of it.
        List<Object> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> one : sent) {
            ids.add(one.thenApply(id -> (Object) Program.idOf(id)).exceptionally(Producing::refused).join());
        }
        return ids;
    }

    static Object refused(Throwable error) {
        return Program.said(error.getCause() == null ? error : error.getCause());
    }

    TypedMessageBuilder<byte[]> built(JsonNode message) {
        TypedMessageBuilder<byte[]> builder = producer.newMessage();
        if (!message.path("null").asBoolean()) {
            builder.value(payload(message));
        }
        if (message.has("key")) {
            builder.key(message.get("key").asText());
        }
        if (message.has("orderingKey")) {
            builder.orderingKey(message.get("orderingKey").asText().getBytes(StandardCharsets.UTF_8));
        }
        if (message.has("properties")) {
            builder.properties(
                    Program.JSON.convertValue(message.get("properties"), new TypeReference<Map<String, String>>() {}));
        }
        if (message.has("eventMs")) {
            builder.eventTime(message.get("eventMs").asLong());
        }
        if (message.has("sequence")) {
            builder.sequenceId(message.get("sequence").asLong());
        }
        if (message.has("delayMs")) {
            builder.deliverAfter(message.get("delayMs").asLong(), TimeUnit.MILLISECONDS);
        }
        return builder;
    }

    static byte[] payload(JsonNode message) {
        StringBuilder text = new StringBuilder(message.path("value").asText(""));
        int size = message.path("size").asInt(0);
        if (size > text.length()) {
            for (int number = 0; text.length() < size; number++) {
                text.append(String.format("%010d", number));
            }
            text.setLength(size);
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }
}
