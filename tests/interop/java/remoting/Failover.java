import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends and consumes with a client's default settings while a test ends and starts nodes.
 *
 * <p>Prints `running` when messages are consumed, and continues until its input has ended 4 s ago.
 */
final class Failover {
    private static final long PAUSE_MS = 2;
    private static final int KEYS = 4;
    private static final int DEFAULT_LIMIT_MS = 3_000;

    private Failover() {
    }

    /** What all senders found. */
    private static final class Sent {
        final Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        final Queue<String> failures = new ConcurrentLinkedQueue<>();
        final AtomicLong gapMs = new AtomicLong();
        volatile boolean isRunning;
        volatile boolean isEnded;

        /** Send one message; return whether it is stored. The gap is the time of a send with its repetitions. */
        boolean send(DefaultMQProducer producer, Message message, Integer key) throws InterruptedException {
            long begunMs = System.currentTimeMillis();
            boolean isStored = false;
            try {
                if (key == null) {
                    producer.send(message);
                } else {
                    producer.send(message, (queues, ignored, each) -> queues.get((Integer) each % queues.size()), key);
                }
                acknowledged.add(RemotingClient.text(message));
                isStored = true;
            } catch (Exception error) {
                if (isRunning) {
                    failures.add(RemotingClient.text(message) + " after "
                            + (System.currentTimeMillis() - begunMs) + " ms: " + error);
                }
            }
            if (isRunning) {
                gapMs.accumulateAndGet(System.currentTimeMillis() - begunMs, Math::max);
            }
            Thread.sleep(PAUSE_MS);
            return isStored;
        }

        String figures() {
            for (String failure : failures) {
                System.err.println(failure);
            }
            return "acknowledged=" + acknowledged.size() + " failed=" + failures.size() + " gap_ms=" + gapMs;
        }
    }

    private interface Sender {
        void run(int number) throws Exception;
    }

    private static List<Thread> start(int count, Sender sender) {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                try {
                    sender.run(number);
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(2);
                }
            });
            thread.start();
            threads.add(thread);
        }
        return threads;
    }

    /** Wait until our input has ended 4 s ago. */
    private static void waitForTheEnd(Sent sent, List<Thread> threads) throws Exception {
        System.out.println("running");
        while (System.in.read() >= 0) {
            continue;
        }
        Thread.sleep(4_000);
        sent.isEnded = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static String sends(int count) throws Exception {
        RemotingClient.Received received = new RemotingClient.Received();
        DefaultMQPushConsumer consumer = RemotingClient.pushConsumer("Failover", "*");
        consumer.registerMessageListener(received.concurrently());
        consumer.start();
        DefaultMQProducer producer = RemotingClient.producer();
        producer.setSendMsgTimeout(DEFAULT_LIMIT_MS);
        Sent sent = new Sent();
        List<Thread> threads = start(count, thread -> {
            for (int number = 0; !sent.isEnded; number++) {
                sent.send(producer, RemotingClient.message("Failover", thread + "-" + number, new HashMap<>()), null);
            }
        });
        RemotingClient.await(() -> received.queues.size() == 4, () -> "queues: " + received.queues);
        received.gapMs.set(0);
        sent.isRunning = true;
        waitForTheEnd(sent, threads);
        RemotingClient.await(() -> received.byText.keySet().containsAll(sent.acknowledged),
                () -> "lost: " + RemotingClient.missing(sent.acknowledged, received.byText.keySet()));
        RemotingClient.shutdown(consumer, producer);
        return sent.figures() + " received_gap_ms=" + received.gapMs + " lost=0 repeated=" + received.repeated;
    }

    /** Each key has one queue; its next number is sent when the last one is acknowledged. */
    static String order() throws Exception {
        Map<Integer, Integer> last = new ConcurrentHashMap<>();
        AtomicInteger repeated = new AtomicInteger();
        AtomicLong gapMs = new AtomicLong();
        AtomicLong lastMs = new AtomicLong(System.currentTimeMillis());
        Queue<String> wrong = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = RemotingClient.pushConsumer("FailoverOrder", "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                long nowMs = System.currentTimeMillis();
                gapMs.accumulateAndGet(nowMs - lastMs.getAndSet(nowMs), Math::max);
                String[] parts = RemotingClient.text(message).split("-");
                int number = Integer.parseInt(parts[1]);
                int before = last.getOrDefault(Integer.parseInt(parts[0]), -1);
                if (number > before + 1) {
                    wrong.add(RemotingClient.text(message) + " after " + before);
                } else if (number <= before) {
                    repeated.incrementAndGet();
                } else {
                    last.put(Integer.parseInt(parts[0]), number);
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = RemotingClient.producer();
        producer.setSendMsgTimeout(DEFAULT_LIMIT_MS);
        Sent sent = new Sent();
        int[] counts = new int[KEYS];
        List<Thread> threads = start(KEYS, key -> {
            while (!sent.isEnded) {
                byte[] body = (key + "-" + counts[key]).getBytes(StandardCharsets.UTF_8);
                if (sent.send(producer, RemotingClient.message("FailoverOrder", new String(body), new HashMap<>()), key)) {
                    counts[key]++;
                }
            }
        });
        RemotingClient.await(() -> last.size() == KEYS, () -> "keys: " + last);
        gapMs.set(0);
        sent.isRunning = true;
        waitForTheEnd(sent, threads);
        for (int key = 0; key < KEYS; key++) {
            int expected = counts[key] - 1;
            int each = key;
            RemotingClient.await(() -> last.get(each) >= expected, () -> "lost: " + last + ", expected " + expected);
        }
        RemotingClient.check(wrong.isEmpty(), "order: " + wrong);
        RemotingClient.shutdown(consumer, producer);
        return sent.figures() + " received_gap_ms=" + gapMs + " lost=0 repeated=" + repeated;
    }
}
