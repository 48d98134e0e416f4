package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * Puts the messages of a file, one put for each line: {@code {"storeHost": H, "messages": [M, ...]}}.
 *
 * <p>Several messages make one batch; they share all but body, properties and flag. A message M has the keys topic,
 * queueId, body (base64), properties (pairs, in order), flag, sysFlag, bornTimestamp, bornHost, reconsumeTimes,
 * preparedTransactionOffset. Hosts are {@code ip|port}.
 */
final class StoreWriter {
    private StoreWriter() {
    }

    static void write(Options options, Consumer<Object> results) throws Exception {
        List<String> lines = options.input() == null ? List.of() : Files.readAllLines(options.input());
        OpenStore open = OpenStore.open(options.directory(), options.config(), options.nodeId());
        for (String line : lines) {
            JSONObject put = JSON.parseObject(line);
            JSONArray messages = put.getJSONArray("messages");
            PutMessageResult result = messages.size() == 1
                ? open.store.putMessage(messageOf(messages.getJSONObject(0), put, new MessageExtBrokerInner()))
                : open.store.putMessages(batchOf(messages, put));
            results.accept(lineOf(result));
        }
        if (!options.isHalted()) {
            open.awaitReady();
            open.close();
        }
    }

    private static MessageExtBatch batchOf(JSONArray messages, JSONObject put) throws IOException {
        List<Message> inner = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            inner.add(messageOf(messages.getJSONObject(i), put, new MessageExtBrokerInner()));
        }
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, messages.getJSONObject(0), put);
        batch.setFlag(0);
        MessageAccessor.setProperties(batch, new LinkedHashMap<>());
        batch.setPropertiesString("");
        batch.setBody(MessageDecoder.encodeMessages(inner));
        return batch;
    }

    private static MessageExtBrokerInner messageOf(JSONObject from, JSONObject put, MessageExtBrokerInner message)
        throws IOException {
        fill(message, from, put);
        message.setBody(Base64.getDecoder().decode(from.getString("body")));
        Map<String, String> properties = new LinkedHashMap<>();
        for (Object pair : from.getJSONArray("properties")) {
            properties.put(((JSONArray) pair).getString(0), ((JSONArray) pair).getString(1));
        }
        MessageAccessor.setProperties(message, properties);
        message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        return message;
    }

    private static void fill(MessageExt message, JSONObject from, JSONObject put) throws IOException {
        message.setTopic(from.getString("topic"));
        message.setQueueId(from.getIntValue("queueId"));
        message.setFlag(from.getIntValue("flag"));
        message.setSysFlag(from.getIntValue("sysFlag"));
        message.setBornTimestamp(from.getLongValue("bornTimestamp"));
        message.setBornHost(hostOf(from.getString("bornHost")));
        message.setStoreHost(hostOf(put.getString("storeHost")));
        message.setReconsumeTimes(from.getIntValue("reconsumeTimes"));
        message.setPreparedTransactionOffset(from.getLongValue("preparedTransactionOffset"));
    }

    private static InetSocketAddress hostOf(String text) throws IOException {
        int bar = text.lastIndexOf('|');
        return new InetSocketAddress(InetAddress.getByName(text.substring(0, bar)), Integer.parseInt(text.substring(bar + 1)));
    }

    private static Map<String, Object> lineOf(PutMessageResult result) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", result.getPutMessageStatus().name());
        var append = result.getAppendMessageResult();
        if (append != null) {
            line.put("physicalOffset", append.getWroteOffset());
            line.put("queueOffset", append.getLogicsOffset());
            line.put("size", append.getWroteBytes());
            line.put("messages", append.getMsgNum());
            line.put("storeTimestamp", append.getStoreTimestamp());
        }
        return line;
    }
}
