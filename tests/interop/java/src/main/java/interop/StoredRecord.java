package interop;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** One message as stored in the log: its bytes, the fields that Java decodes, and the other places where it was found. */
final class StoredRecord {
    final byte[] bytes;
    final MessageExt message;
    Long tagsCode;
    boolean isInQueue;
    boolean isIndexed;

    StoredRecord(byte[] bytes) {
        this.bytes = bytes;
        this.message = MessageDecoder.decode(ByteBuffer.wrap(bytes), true, false, false, false, true);
        if (message == null) {
            throw new IllegalStateException("Java does not decode a message that it accepted");
        }
    }

    /** Returns the keys of the message in the order in which they are indexed. */
    List<String> keys() {
        List<String> keys = new ArrayList<>();
        String uniqueKey = message.getProperty("UNIQ_KEY");
        if (uniqueKey != null) {
            keys.add(uniqueKey);
        }
        String rest = message.getKeys();
        if (rest != null) {
            for (String key : rest.split(" ")) {
                if (!key.isEmpty()) {
                    keys.add(key);
                }
            }
        }
        return keys;
    }

    /** Returns the line of the manifest. */
    Map<String, Object> line() {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", message.getTopic());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("physicalOffset", message.getCommitLogOffset());
        line.put("size", bytes.length);
        line.put("inConsumeQueue", isInQueue);
        line.put("indexed", isIndexed);
        line.put("tag", message.getTags());
        line.put("tagsCode", tagsCode);
        line.put("keys", message.getKeys());
        line.put("uniqKey", message.getProperty("UNIQ_KEY"));
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("bornHost", host(message.getBornHost()));
        line.put("storeHost", host(message.getStoreHost()));
        line.put("msgId", message.getMsgId());
        line.put("magic", ByteBuffer.wrap(bytes).getInt(4));
        line.put("flag", message.getFlag());
        line.put("sysFlag", message.getSysFlag());
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        line.put("bodyCRC", message.getBodyCRC());
        line.put("body", Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody()));
        line.put("properties", new TreeMap<>(message.getProperties()));
        line.put("propertiesRaw", Base64.getEncoder().encodeToString(propertiesRaw()));
        return line;
    }

    /** Returns the stored bytes of the properties: they end the record, after two bytes with their length. */
    private byte[] propertiesRaw() {
        ByteBuffer record = ByteBuffer.wrap(bytes);
        int hosts = ((message.getSysFlag() & 0x10) == 0 ? 8 : 20) + ((message.getSysFlag() & 0x20) == 0 ? 8 : 20);
        int bodyAt = 68 + hosts;
        int topicAt = bodyAt + 4 + record.getInt(bodyAt);
        boolean isSecondVersion = record.getInt(4) == 0xDAA320AB;
        int topicSize = isSecondVersion ? record.getShort(topicAt) : record.get(topicAt);
        int propertiesAt = topicAt + (isSecondVersion ? 2 : 1) + topicSize;
        byte[] properties = new byte[record.getShort(propertiesAt)];
        record.position(propertiesAt + 2).get(properties);
        return properties;
    }

    private static String host(java.net.SocketAddress address) {
        java.net.InetSocketAddress host = (java.net.InetSocketAddress) address;
        return host.getAddress().getHostAddress() + "|" + host.getPort();
    }
}
