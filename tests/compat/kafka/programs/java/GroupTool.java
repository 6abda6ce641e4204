import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/**
 * Kafka's own kafka-consumer-groups, unmodified, once for each line of the input, so that one JVM is enough for many
 * commands. A line is a JSON array of arguments; the answer is one JSON string with what the tool printed.
 */
public final class GroupTool {
    public static void main(String[] none) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream captured = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(captured);
            System.setErr(captured);
            ConsumerGroupCommand.main(json.readValue(line, String[].class));
            answers.println(json.writeValueAsString(printed.toString(StandardCharsets.UTF_8)));
            answers.flush();
        }
    }
}
