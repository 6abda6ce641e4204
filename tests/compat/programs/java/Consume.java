import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.aliyun.openservices.log.common.FastLog;
import com.aliyun.openservices.log.common.FastLogGroup;
import com.aliyun.openservices.log.common.LogGroupData;
import com.aliyun.openservices.loghub.client.ClientWorker;
import com.aliyun.openservices.loghub.client.ILogHubCheckPointTracker;
import com.aliyun.openservices.loghub.client.config.LogHubConfig;
import com.aliyun.openservices.loghub.client.exceptions.LogHubCheckPointException;
import com.aliyun.openservices.loghub.client.interfaces.ILogHubProcessor;
import java.io.File;
import java.util.ArrayList;
import java.util.List;

/**
 * Consumes a logstore with the vendor's Java library, as tests/compat/consumers.py describes.
 */
public class Consume {
    static JSONObject config;
    static boolean rolledBack = false;

    public static void main(String[] arguments) throws Exception {
        config = JSON.parseObject(new String(System.in.readAllBytes(), "UTF-8"));
        ClientWorker worker = new ClientWorker(Writer::new, settings());
        Runtime.getRuntime().addShutdownHook(new Thread(worker::shutdown));
        worker.run();
    }

    static LogHubConfig settings() {
        String from = config.getString("from");
        LogHubConfig settings;
        if (from.equals("begin") || from.equals("end")) {
            settings = new LogHubConfig(config.getString("group"), config.getString("consumer"),
                    config.getString("endpoint"), config.getString("project"), config.getString("logstore"),
                    config.getString("keyId"), config.getString("keySecret"),
                    from.equals("begin") ? LogHubConfig.ConsumePosition.BEGIN_CURSOR
                            : LogHubConfig.ConsumePosition.END_CURSOR);
        } else {
            settings = new LogHubConfig(config.getString("group"), config.getString("consumer"),
                    config.getString("endpoint"), config.getString("project"), config.getString("logstore"),
                    config.getString("keyId"), config.getString("keySecret"), Integer.parseInt(from));
        }
        settings.setHeartBeatIntervalMillis(config.getLongValue("heartbeatS") * 1000);
        settings.setTimeoutInSeconds(config.getIntValue("timeoutS"));
        settings.setConsumeInOrder(config.getBooleanValue("inOrder"));
        settings.setFetchIntervalMillis(100);
        return settings;
    }

    /** Prints the lines of a batch, then saves the checkpoint. */
    static class Writer implements ILogHubProcessor {
        private int shard;

        @Override
        public void initialize(int shardId) {
            shard = shardId;
        }

        @Override
        public String process(List<LogGroupData> groups, ILogHubCheckPointTracker tracker) {
            List<String> lines = new ArrayList<>();
            for (LogGroupData data : groups) {
                FastLogGroup group = data.GetFastLogGroup();
                for (int log = 0; log < group.getLogsCount(); log++) {
                    FastLog one = group.getLogs(log);
                    for (int content = 0; content < one.getContentsCount(); content++) {
                        lines.add(one.getContents(content).getValue());
                    }
                }
            }
            waitWhileHeld();
            JSONObject read = new JSONObject();
            read.put("shard", shard);
            read.put("lines", lines);
            synchronized (Consume.class) {
                System.out.println(read.toJSONString());
                System.out.flush();
                if (!rolledBack && lines.contains(config.getString("rollBackAt"))) {
                    rolledBack = true;
                    return config.getString("rollBackTo");
                }
            }
            save(tracker);
            return null;
        }

        @Override
        public void shutdown(ILogHubCheckPointTracker tracker) {
            save(tracker);
        }

        private void save(ILogHubCheckPointTracker tracker) {
            try {
                tracker.saveCheckPoint(true);
            } catch (LogHubCheckPointException error) {
                System.err.println("shard " + shard + ": " + error);
            }
        }

        private void waitWhileHeld() {
            while (new File(config.getString("holdFile")).exists()) {
                try {
                    Thread.sleep(50);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                    return;
                }
            }
        }
    }
}
