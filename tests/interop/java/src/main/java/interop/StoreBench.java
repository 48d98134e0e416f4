package interop;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/**
 * Measures what `dledger bench-store` measures, in the same way: puts in batches of 100 (1 KiB, TAGS and UNIQ_KEY, four
 * queues in turn), gets of 32 with decoding, and opening a log without queues and index, which dispatches all of it.
 */
final class StoreBench {
    private static final int BATCH = 100;
    private static final int CALL_MESSAGES = 32;
    private static final int BODY_SIZE = 1024;
    private static final int QUEUES = 4;
    private static final String TOPIC = "bench";

    private StoreBench() {
    }

    static void measure(Options options, Consumer<Object> results) throws Exception {
        Files.createDirectories(options.directory());
        OpenStore open = OpenStore.open(options.directory(), options.config(), "");
        long began = System.nanoTime();
        double putSeconds = put(open, options.count()) / 1e9;
        open.awaitReady();
        double putAndDispatchSeconds = seconds(began);
        began = System.nanoTime();
        int count = get(open);
        double getSeconds = seconds(began);
        open.close();
        double rebuildSeconds = rebuild(options.directory(), options.config());
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("messages", count);
        line.put("put_s", count / putSeconds);
        line.put("put_and_dispatch_s", count / putAndDispatchSeconds);
        line.put("get_s", count / getSeconds);
        line.put("rebuild_s", count / rebuildSeconds);
        results.accept(line);
    }

    /** Puts the messages; returns the nanoseconds that the store took, without making the batches. */
    private static long put(OpenStore open, int count) throws IOException {
        long nanos = 0;
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
        byte[] body = new byte[BODY_SIZE];
        for (int first = 0; first < count; first += BATCH) {
            List<Message> messages = new ArrayList<>(BATCH);
            for (int number = first; number < first + BATCH; number++) {
                Message message = new Message(TOPIC, "tag", body);
                MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("%032X", number));
                messages.add(message);
            }
            MessageExtBatch batch = new MessageExtBatch();
            batch.setTopic(TOPIC);
            batch.setQueueId(first / BATCH % QUEUES);
            batch.setBornTimestamp(System.currentTimeMillis());
            batch.setBornHost(host);
            batch.setStoreHost(host);
            batch.setBody(MessageDecoder.encodeMessages(messages));
            long began = System.nanoTime();
            PutMessageStatus status = open.store.putMessages(batch).getPutMessageStatus();
            nanos += System.nanoTime() - began;
            if (status != PutMessageStatus.PUT_OK) {
                throw new IllegalStateException("put: " + status);
            }
        }
        return nanos;
    }

    private static int get(OpenStore open) {
        int count = 0;
        for (int queueId = 0; queueId < QUEUES; queueId++) {
            long offset = 0;
            while (true) {
                GetMessageResult call = open.store.getMessage("interop", TOPIC, queueId, offset, CALL_MESSAGES, null);
                if (call.getMessageCount() == 0) {
                    break;
                }
                for (ByteBuffer buffer : call.getMessageBufferList()) {
                    if (MessageDecoder.decode(buffer, true, false).getBody().length == BODY_SIZE) {
                        count++;
                    }
                }
                offset = call.getNextBeginOffset();
                call.release();
            }
        }
        return count;
    }

    private static double rebuild(Path directory, Properties config) throws Exception {
        for (String derived : List.of("consumequeue", "index", "checkpoint")) {
            try (Stream<Path> paths = Files.walk(directory.resolve(derived))) {
                for (Path path : (Iterable<Path>) paths.sorted(Comparator.reverseOrder())::iterator) {
                    Files.delete(path);
                }
            }
        }
        return OpenStore.open(directory, config, "").loadNanos / 1e9;
    }

    private static double seconds(long began) {
        return (System.nanoTime() - began) / 1e9;
    }
}
