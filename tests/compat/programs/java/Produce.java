import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.aliyun.openservices.log.Client;
import com.aliyun.openservices.log.common.Consts;
import com.aliyun.openservices.log.common.LogItem;
import com.aliyun.openservices.log.exception.LogException;
import com.aliyun.openservices.log.request.PutLogsRequest;
import java.util.ArrayList;
import java.util.List;

/**
 * Writes to a logstore with the vendor's Java SDK in every way that it has, as tests/compat/test_producers.py describes.
 */
public class Produce {
    static JSONObject config;

    public static void main(String[] arguments) throws Exception {
        config = JSON.parseObject(new String(System.in.readAllBytes(), "UTF-8"));
        Client client = new Client(config.getString("endpoint"), config.getString("keyId"),
                config.getString("keySecret"));
        List<String> written = new ArrayList<>();
        JSONObject refused = new JSONObject();
        for (Consts.CompressType compression : Consts.CompressType.values()) {
            for (String route : new String[] {"balanced", "by key", "by key of its request"}) {
                String line = compression + " " + route;
                try {
                    client.PutLogs(request(line, compression, route));
                    written.add(line);
                } catch (LogException error) {
                    refused.put(line, error.GetErrorCode() + ": " + error.GetErrorMessage());
                }
            }
        }
        PutLogsRequest json = request("as JSON", Consts.CompressType.LZ4, "balanced");
        json.setContentType(Consts.CONST_SLS_JSON);
        try {
            client.PutLogs(json);
            written.add("as JSON");
        } catch (LogException error) {
            refused.put("as JSON", error.GetErrorCode() + ": " + error.GetErrorMessage());
        }
        int shards = client.SplitShard(config.getString("project"), config.getString("logstore"), 0,
                "20000000000000000000000000000000").GetShards().size();
        JSONObject done = new JSONObject();
        done.put("written", written);
        done.put("refused", refused);
        done.put("shards", shards);
        System.out.println(done.toJSONString());
        System.exit(0);
    }

    static PutLogsRequest request(String line, Consts.CompressType compression, String route) {
        LogItem item = new LogItem(1700000000);
        item.PushBack("line", line);
        List<LogItem> items = new ArrayList<>();
        items.add(item);
        String key = route.equals("by key of its request") ? config.getString("hashKey") : null;
        PutLogsRequest request = new PutLogsRequest(config.getString("project"), config.getString("logstore"), "topic",
                "source", items, key);
        request.SetCompressType(compression);
        if (route.equals("by key")) {
            request.SetRouteKey(config.getString("hashKey"));
        }
        return request;
    }
}
