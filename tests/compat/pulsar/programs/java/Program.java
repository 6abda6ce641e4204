import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.PulsarClient;

/** A program with Pulsar's own library for Java, driven by the commands that client.py describes. */
public class Program {
    /** What a name stands for; it is never called twice at the same time. */
    interface Named {
        Map<String, Object> carryOut(String name, JsonNode command) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();

    final Map<String, Named> objects = new ConcurrentHashMap<>();
    final Map<String, ExecutorService> threads = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Program program = new Program();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            program.take(JSON.readTree(line));
        }
        Runtime.getRuntime().halt(0);
    }

    void take(JsonNode command) {
        threads.computeIfAbsent(command.get("of").asText(), name -> Executors.newSingleThreadExecutor())
                .execute(() -> serve(command));
    }

    void serve(JsonNode command) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.putAll(carryOut(command.get("of").asText(), command.get("do").asText(), command));
        } catch (Exception error) {
            answer.putAll(said(error));
        }
        answer.put("id", command.get("id").asInt());
        say(answer);
    }

    Map<String, Object> carryOut(String of, String name, JsonNode command) throws Exception {
        switch (name) {
            case "connect":
                objects.put(of, new Client(command));
                return Map.of();
            case "producer":
                Producing producer = new Producing(client(command), command);
                objects.put(of, producer);
                return producer.opened();
            case "subscribe":
                objects.put(of, Consuming.subscribed(client(command), command));
                return Map.of();
            case "reader":
                objects.put(of, Consuming.reader(client(command), command));
                return Map.of();
            default:
                return objects.get(of).carryOut(name, command);
        }
    }

    PulsarClient client(JsonNode command) {
        return ((Client) objects.get(command.get("client").asText())).client;
    }

    static class Client implements Named {
        final PulsarClient client;

        Client(JsonNode command) throws Exception {
            ClientBuilder builder = PulsarClient.builder()
                    .serviceUrl(command.get("url").asText())
                    .enableTlsHostnameVerification(true)
                    .statsInterval(0, TimeUnit.SECONDS);
            if (!command.path("token").asText().isEmpty()) {
                builder.authentication(AuthenticationFactory.token(command.get("token").asText()));
            }
            if (!command.path("ca").asText().isEmpty()) {
                builder.tlsTrustCertsFilePath(command.get("ca").asText());
            }
            if (command.has("timeoutS")) {
                int seconds = command.get("timeoutS").asInt();
                builder.operationTimeout(seconds, TimeUnit.SECONDS).lookupTimeout(seconds, TimeUnit.SECONDS);
            }
            client = builder.build();
        }

        @Override
        public Map<String, Object> carryOut(String name, JsonNode command) throws Exception {
            switch (name) {
                case "partitions":
                    return Map.of("topics", client.getPartitionsForTopic(command.get("topic").asText()).get());
                case "close":
                    client.close();
                    return Map.of();
                default:
                    throw new IllegalArgumentException("a client cannot " + name);
            }
        }
    }

    static List<Object> idOf(MessageId id) {
        MessageIdAdv found = (MessageIdAdv) id;
        String bytes = HexFormat.of().formatHex(id.toByteArray());
        return Arrays.asList(found.getLedgerId(), found.getEntryId(), found.getBatchIndex(), bytes);
    }

    static MessageId idFrom(String text) throws Exception {
        switch (text) {
            case "earliest":
                return MessageId.earliest;
            case "latest":
                return MessageId.latest;
            default:
                return MessageId.fromByteArray(HexFormat.of().parseHex(text));
        }
    }

    static Map<String, Object> said(Throwable error) {
        String name = error.getClass().getSimpleName().replace("Exception", "");
        return Map.of("error", name, "text", String.valueOf(error.getMessage()));
    }

    static synchronized void say(Map<String, ?> value) {
        try {
            System.out.println(JSON.writeValueAsString(value));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        System.out.flush();
    }
}
