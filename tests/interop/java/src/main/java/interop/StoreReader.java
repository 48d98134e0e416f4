package interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;

/**
 * Reads all messages of a store in every way that Java has, and reports where the results differ.
 *
 * <p>The log, walked from its beginning, is what the others are compared with: each message by its physical offset, each
 * queue in calls of 32, each key in the index.
 */
final class StoreReader {
    private static final int CALL_MESSAGES = 32;

    private final DefaultMessageStore store;
    private final Map<Long, StoredRecord> records = new TreeMap<>();
    private final List<Map<String, Object>> queues = new ArrayList<>();
    private final List<String> problems = new ArrayList<>();
    private int keysFound;

    private StoreReader(DefaultMessageStore store) {
        this.store = store;
    }

    /** Reads a copy of a store; or the store itself, which is then shut down cleanly and keeps Java's changes. */
    static void read(Options options, Consumer<Object> results) throws Exception {
        if (!options.isCopied()) {
            try (OpenStore open = OpenStore.open(options.directory(), options.config(), options.nodeId())) {
                new StoreReader(open.store).readAll(results);
            }
            return;
        }
        // The caller deletes it: the store writes into it until the process has ended.
        Path copy = Files.createTempDirectory("interop-");
        copy(options.directory(), copy);
        // Never closed: the process ends by a halt, and shutting down takes seconds.
        OpenStore open = OpenStore.open(copy, options.config(), options.nodeId());
        new StoreReader(open.store).readAll(results);
    }

    private void readAll(Consumer<Object> results) throws Exception {
        walkLog();
        records.forEach(this::readByOffset);
        for (Map<Integer, ConsumeQueueInterface> topic : new TreeMap<>(store.getConsumeQueueTable()).values()) {
            for (ConsumeQueueInterface queue : new TreeMap<>(topic).values()) {
                readQueue(queue);
            }
        }
        records.values().forEach(this::readByKeys);
        records.values().forEach(record -> results.accept(record.line()));
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("summary", true);
        summary.put("messages", records.size());
        summary.put("minPhyOffset", store.getMinPhyOffset());
        summary.put("maxPhyOffset", store.getMaxPhyOffset());
        summary.put("queues", queues);
        summary.put("keysFound", keysFound);
        summary.put("problems", problems);
        results.accept(summary);
    }

    private void walkLog() {
        CommitLog log = store.getCommitLog();
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult stretch = log.getData(offset);
            if (stretch == null) {
                problems.add("log: nothing to read at " + offset + ", below its end " + store.getMaxPhyOffset());
                return;
            }
            long next = stretch.getStartOffset();
            ByteBuffer buffer = stretch.getByteBuffer();
            while (buffer.hasRemaining() && next < store.getMaxPhyOffset()) {
                DispatchRequest found = log.checkMessageAndReturnSize(buffer, true, false, true);
                int size = found.getBufferSize() == -1 ? found.getMsgSize() : found.getBufferSize();
                if (!found.isSuccess()) {
                    problems.add("log: no good message at " + next);
                    stretch.release();
                    return;
                }
                if (size == 0) {
                    next = log.rollNextFile(next);
                    break;
                }
                SelectMappedBufferResult message = log.getMessage(found.getCommitLogOffset(), found.getMsgSize());
                records.put(found.getCommitLogOffset(), new StoredRecord(bytesOf(message.getByteBuffer())));
                message.release();
                next += size;
            }
            stretch.release();
            offset = next;
        }
    }

    private void readByOffset(long offset, StoredRecord record) {
        MessageExt found = store.lookMessageByOffset(offset);
        if (found == null || !found.getMsgId().equals(record.message.getMsgId())
            || !Arrays.equals(found.getBody(), record.message.getBody())
            || record.message.getCommitLogOffset() != offset) {
            problems.add("log: the message at " + offset + " is not found by its offset");
        }
    }

    private void readQueue(ConsumeQueueInterface queue) {
        String name = queue.getTopic() + "-" + queue.getQueueId();
        long begin = queue.getMinOffsetInQueue();
        long end = queue.getMaxOffsetInQueue();
        queues.add(Map.of("topic", queue.getTopic(), "queueId", queue.getQueueId(), "min", begin, "max", end));
        long offset = begin;
        while (offset < end) {
            GetMessageResult call =
                store.getMessage("interop", queue.getTopic(), queue.getQueueId(), offset, CALL_MESSAGES, null);
            if (call == null || call.getMessageCount() == 0) {
                problems.add(name + ": nothing at " + offset + ", of " + begin + " to " + end + ": "
                    + (call == null ? null : call.getStatus()));
                return;
            }
            for (ByteBuffer buffer : call.getMessageBufferList()) {
                take(queue, name, offset, bytesOf(buffer));
                offset++;
            }
            call.release();
        }
    }

    private void take(ConsumeQueueInterface queue, String name, long offset, byte[] bytes) {
        CqUnit unit = queue.get(offset);
        StoredRecord record = records.get(unit.getPos());
        if (record == null || unit.getSize() != record.bytes.length || !Arrays.equals(bytes, record.bytes)) {
            problems.add(name + ": " + offset + " leads to " + unit.getPos() + ", where the log has another message or none");
            return;
        }
        MessageExt message = record.message;
        if (!message.getTopic().equals(queue.getTopic()) || message.getQueueId() != queue.getQueueId()
            || message.getQueueOffset() != offset || record.isInQueue) {
            problems.add(name + ": " + offset + " is the place of " + message.getTopic() + "-" + message.getQueueId() + ": "
                + message.getQueueOffset());
        }
        record.isInQueue = true;
        record.tagsCode = unit.getTagsCode();
    }

    private void readByKeys(StoredRecord record) {
        MessageExt message = record.message;
        Set<String> missing = new HashSet<>();
        List<String> keys = record.keys();
        for (String key : keys) {
            // The index has a resolution of one second.
            QueryMessageResult found = store.queryMessage(message.getTopic(), key, Integer.MAX_VALUE,
                message.getStoreTimestamp() - 1000, message.getStoreTimestamp() + 1000);
            boolean isFound = false;
            for (ByteBuffer buffer : found.getMessageBufferList()) {
                isFound |= buffer.getLong(28) == message.getCommitLogOffset();
            }
            found.release();
            if (isFound) {
                keysFound++;
            } else {
                missing.add(key);
            }
        }
        record.isIndexed = missing.isEmpty();
        if (!missing.isEmpty() && missing.size() < new HashSet<>(keys).size()) {
            problems.add("index: " + message.getCommitLogOffset() + " is found by some of its keys, not by " + missing);
        }
    }

    private static byte[] bytesOf(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private static void copy(Path from, Path to) throws IOException {
        try (Stream<Path> paths = Files.walk(from)) {
            for (Path path : (Iterable<Path>) paths::iterator) {
                Path target = to.resolve(from.relativize(path).toString());
                if (Files.isDirectory(path)) {
                    Files.createDirectories(target);
                } else {
                    Files.copy(path, target);
                }
            }
        }
    }
}
