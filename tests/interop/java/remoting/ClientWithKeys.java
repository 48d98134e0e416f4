import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends and receives with the official remoting client of RocketMQ, 4.9 or 5.x, with access keys; TLS is chosen by
 * properties of the JVM.
 *
 * <p>Arguments: the name servers, a topic, then cases: `name,key,secret,push`, or `name,key,secret,` without a push
 * consumer; with an empty key the client has no credentials. Prints one line of JSON, for each case: the error of a
 * send, that of a pull, what was pulled, and the error of a push consumer, which ends when it has consumed a message.
 */
public final class ClientWithKeys {
    private static final int LIMIT_MS = 60_000;
    // By default 3 s, which a busy machine needs to load the classes for the first call.
    private static final int TIMEOUT_MS = 20_000;
    private static String nameServers;
    private static String topic;
    private static int instances;

    private interface Action {
        void run() throws Exception;
    }

    private ClientWithKeys() {
    }

    public static void main(String[] args) {
        nameServers = args[0];
        topic = args[1];
        List<String> found = new ArrayList<>();
        for (int i = 2; i < args.length; i++) {
            String[] parts = args[i].split(",", -1);
            RPCHook hook =
                parts[1].isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(parts[1], parts[2]));
            List<String> bodies = new ArrayList<>();
            String send = errorOf(() -> send(hook, parts[0]));
            String receive = errorOf(() -> pull(hook, bodies));
            String push = parts[3].equals("push") ? errorOf(() -> push(hook)) : "";
            String list = bodies.stream().map(ClientWithKeys::quoted).collect(Collectors.joining(",", "[", "]"));
            found.add(quoted(parts[0]) + ":{\"send\":" + quoted(send) + ",\"receive\":" + quoted(receive)
                + ",\"bodies\":" + list + ",\"push\":" + quoted(push) + "}");
        }
        System.out.println(found.stream().collect(Collectors.joining(",", "{", "}")));
        System.out.flush();
        // Threads of the clients may still run.
        Runtime.getRuntime().halt(0);
    }

    private static void send(RPCHook hook, String body) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producer", hook);
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName(instance());
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        try {
            producer.start();
            producer.send(new Message(topic, body.getBytes()));
        } finally {
            producer.shutdown();
        }
    }

    /** Pull the messages of all queues; their bodies are added to a list. */
    private static void pull(RPCHook hook, List<String> bodies) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("G" + topic, hook);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(instance());
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        try {
            consumer.start();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                PullResult result = consumer.pull(queue, "*", 0, 32);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(each -> bodies.add(new String(each.getBody())));
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** Consume a message; the end of the consumer commits its offset. */
    private static void push(RPCHook hook) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("P" + topic, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName(instance());
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        CountDownLatch consumed = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
            if (!consumed.await(LIMIT_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("no message");
            }
            // Its end commits what the client has noted, a moment after the listener has returned.
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                while (consumer.getDefaultMQPushConsumerImpl().getOffsetStore()
                    .readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) < 1) {
                    Thread.sleep(10);
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** Clients of one process share connections, and the first one's key, unless their instances differ. */
    private static String instance() {
        return "i" + ++instances + "-" + System.nanoTime();
    }

    /** Return the types and the texts of an error and of its causes; empty: none. */
    private static String errorOf(Action action) {
        StringBuilder found = new StringBuilder();
        try {
            action.run();
        } catch (Exception thrown) {
            for (Throwable each = thrown; each != null; each = each.getCause()) {
                found.append(each).append("; ");
            }
        }
        return found.toString();
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            quoted.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
        }
        return quoted.append('"').toString();
    }
}
