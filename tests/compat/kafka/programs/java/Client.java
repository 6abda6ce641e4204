import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A Kafka client with Kafka's own library, driven by the commands that client.py describes.
 *
 * <p>Two commands are only its own: {@code longPoll} is answered, and then polls for ten minutes; {@code wakeup},
 * read by another thread, ends that and answers whether it did.
 */
public class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration GUARD = Duration.ofSeconds(150);
    static final Duration LONG = Duration.ofMinutes(10);
    static final int FROM_BEGIN = -2;
    static final Map<String, String> ASSIGNORS = Map.of(
            "range", "RangeAssignor",
            "roundrobin", "RoundRobinAssignor",
            "sticky", "StickyAssignor",
            "cooperative-sticky", "CooperativeStickyAssignor");

    final JsonNode settings;
    final LinkedBlockingQueue<JsonNode> commands = new LinkedBlockingQueue<>();
    KafkaProducer<String, String> producer;
    volatile KafkaConsumer<String, String> consumer;
    boolean polling;
    List<List<Object>> assigned = List.of();

    Client(JsonNode settings) {
        this.settings = settings;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Client client = new Client(JSON.readTree(input.readLine()));
        Thread reader = new Thread(() -> client.read(input));
        reader.setDaemon(true);
        reader.start();
        say(Map.of("done", "open"));
        client.serve();
    }

    void read(BufferedReader input) {
        try {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                JsonNode command = JSON.readTree(line);
                if (command.get("do").asText().equals("wakeup")) {
                    consumer.wakeup();
                } else {
                    commands.add(command);
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    void serve() throws Exception {
        while (true) {
            JsonNode command = polling ? commands.poll() : commands.take();
            if (command == null) {
                poll(Duration.ofMillis(100));
                continue;
            }
            String name = command.get("do").asText();
            Map<String, Object> answer = new HashMap<>(Map.of("done", name));
            answer.putAll(carryOut(name, command));
            polling = polling || name.equals("subscribe") || name.equals("assign");
            say(answer);
            if (name.equals("longPoll")) {
                longPoll();
            }
            if (name.equals("close")) {
                return;
            }
        }
    }

    Map<String, Object> carryOut(String name, JsonNode command) throws Exception {
        switch (name) {
            case "produce":
                return Map.of("failed", produce(command.get("topic").asText(), command.get("records")));
            case "subscribe":
                consumer = consumer();
                consumer.subscribe(JSON.convertValue(command.get("topics"), new TypeReference<List<String>>() {}));
                break;
            case "assign":
                assign(command.get("places"));
                break;
            case "commit":
                commit();
                break;
            case "committed":
                return Map.of("offsets", committed(places(command.get("places"))));
            case "seek":
                consumer.seek(place(command.get("place")), command.get("place").get(2).asLong());
                break;
            case "process":
                Thread.sleep(command.get("seconds").asLong() * 1000);
                break;
            case "pause":
                consumer.pause(places(command.get("places")));
                break;
            case "resume":
                consumer.resume(places(command.get("places")));
                break;
            case "times":
                return Map.of("offsets", times(command.get("places")));
            case "ends":
                return Map.of("offsets", ends(places(command.get("places"))));
            case "close":
                if (consumer != null) {
                    consumer.close();
                }
                if (producer != null) {
                    producer.close();
                }
                break;
            default:
        }
        return Map.of();
    }

    Properties base() {
        Properties base = new Properties();
        base.put("bootstrap.servers", settings.get("servers").asText());
        base.put("metadata.max.age.ms", "1000");
        base.put("reconnect.backoff.max.ms", "500");
        String authority = settings.get("ca").asText();
        String user = settings.get("user").asText();
        base.put("security.protocol", (user.isEmpty() ? "" : "SASL_")
                + (authority.isEmpty() ? "PLAINTEXT" : "SSL"));
        if (!user.isEmpty()) {
            base.put("sasl.mechanism", "PLAIN");
            base.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\""
                    + user + "\" password=\"" + quoted(settings.get("password").asText()) + "\";");
        }
        if (!authority.isEmpty()) {
            base.put("ssl.truststore.type", "PEM");
            base.put("ssl.truststore.location", authority);
        }
        return base;
    }

    static String quoted(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"");
    }

    int produce(String topic, JsonNode records) throws InterruptedException {
        if (producer == null) {
            Properties options = base();
            options.put("linger.ms", settings.get("lingerMs").asText());
            String codec = settings.get("codec").asText();
            options.put("compression.type", codec.isEmpty() ? "none" : codec);
            producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer());
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode one : records) {
            Integer partition = one.get(0).asInt() < 0 ? null : one.get(0).asInt();
            sent.add(producer.send(new ProducerRecord<>(topic, partition, one.get(1).asText(), one.get(2).asText())));
        }
        producer.flush();
        int failed = 0;
        for (Future<RecordMetadata> one : sent) {
            try {
                one.get();
            } catch (ExecutionException error) {
                failed++;
                System.err.println(error.getCause());
            }
        }
        return failed;
    }

    KafkaConsumer<String, String> consumer() {
        Properties options = base();
        String group = settings.get("group").asText();
        if (!group.isEmpty()) {
            options.put("group.id", group);
        }
        String reset = settings.get("reset").asText();
        options.put("auto.offset.reset", reset.isEmpty() ? "earliest" : reset);
        options.put("enable.auto.commit", settings.get("autoCommit").asBoolean() ? "true" : "false");
        options.put("auto.commit.interval.ms", "200");
        options.put("session.timeout.ms", String.valueOf(settings.get("sessionS").asInt() * 1000));
        options.put("heartbeat.interval.ms", "500");
        if (!settings.get("instance").asText().isEmpty()) {
            options.put("group.instance.id", settings.get("instance").asText());
        }
        if (!settings.get("assignor").asText().isEmpty()) {
            String names = Arrays.stream(settings.get("assignor").asText().split(","))
                    .map(name -> "org.apache.kafka.clients.consumer." + ASSIGNORS.get(name))
                    .collect(Collectors.joining(","));
            options.put("partition.assignment.strategy", names);
        }
        return new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
    }

    void assign(JsonNode wanted) {
        if (consumer == null) {
            consumer = consumer();
        }
        consumer.assign(places(wanted));
        for (JsonNode one : wanted) {
            if (one.get(2).asLong() == FROM_BEGIN) {
                consumer.seekToBeginning(List.of(place(one)));
            } else {
                consumer.seek(place(one), one.get(2).asLong());
            }
        }
    }

    void poll(Duration time) throws Exception {
        List<List<Object>> found = new ArrayList<>();
        for (ConsumerRecord<String, String> one : consumer.poll(time)) {
            found.add(Arrays.asList(one.topic(), one.partition(), one.offset(), one.key(), one.value()));
        }
        List<List<Object>> now = new ArrayList<>();
        new TreeSet<>(consumer.assignment().stream().map(Client::sortable).toList())
                .forEach(one -> now.add(List.of(one.substring(10), Integer.parseInt(one.substring(0, 10)))));
        if (!now.equals(assigned)) {
            assigned = now;
            say(Map.of("assigned", assigned));
        }
        if (!found.isEmpty()) {
            say(Map.of("records", found));
        }
    }

    static String sortable(TopicPartition one) {
        return String.format("%010d%s", one.partition(), one.topic());
    }

    void longPoll() throws Exception {
        long until = System.nanoTime() + LONG.toNanos();
        boolean woken = false;
        while (!woken && System.nanoTime() < until) {
            try {
                poll(LONG); // A poll also ends when it has records.
            } catch (WakeupException expected) {
                woken = true;
            }
        }
        say(Map.of("done", "wakeup", "woken", woken));
    }

    /** During a cooperative rebalance a commit is refused until a poll has ended the rebalance. */
    void commit() throws Exception {
        long until = System.nanoTime() + GUARD.toNanos();
        while (true) {
            try {
                consumer.commitSync();
                return;
            } catch (RebalanceInProgressException refused) {
                if (System.nanoTime() > until) {
                    throw refused;
                }
                poll(Duration.ofMillis(100));
            }
        }
    }

    List<Long> committed(List<TopicPartition> asked) {
        Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new java.util.HashSet<>(asked), GUARD);
        return asked.stream().map(one -> found.get(one) == null ? -1001L : found.get(one).offset()).toList();
    }

    List<Long> times(JsonNode asked) {
        Map<TopicPartition, Long> wanted = new HashMap<>();
        asked.forEach(one -> wanted.put(place(one), one.get(2).asLong()));
        Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(wanted, GUARD);
        return places(asked).stream().map(one -> found.get(one) == null ? -1L : found.get(one).offset()).toList();
    }

    List<List<Long>> ends(List<TopicPartition> asked) {
        Map<TopicPartition, Long> first = consumer.beginningOffsets(asked, GUARD);
        Map<TopicPartition, Long> last = consumer.endOffsets(asked, GUARD);
        return asked.stream().map(one -> List.of(first.get(one), last.get(one))).toList();
    }

    static List<TopicPartition> places(JsonNode rows) {
        List<TopicPartition> found = new ArrayList<>();
        rows.forEach(row -> found.add(place(row)));
        return found;
    }

    static TopicPartition place(JsonNode row) {
        return new TopicPartition(row.get(0).asText(), row.get(1).asInt());
    }

    static synchronized void say(Map<String, ?> value) throws Exception {
        System.out.println(JSON.writeValueAsString(value));
        System.out.flush();
    }
}
