import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The official remoting client of RocketMQ, 4.9 or 5.x, with a broker of ours.
 *
 * <p>Arguments: the name servers, a prefix of the topics, then names of scenarios. Each prints one line: `ok NAME FIGURES`
 * or `failed NAME WHY`. The topics (prefix + Normal, Ordered and so on) exist and are empty, with 4 queues each. It is
 * compiled with each version of the client, because their classes differ.
 */
public final class RemotingClient {
    private static final long LIMIT_MS = 60_000;
    private static String nameServers;
    private static String prefix;
    private static int instances;

    private interface Scenario {
        String run() throws Exception;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    /** What was not as it must be. */
    static final class Wrong extends Exception {
        private static final long serialVersionUID = 1;

        Wrong(String text) {
            super(text);
        }
    }

    private RemotingClient() {
    }

    public static void main(String[] args) {
        nameServers = args[0];
        prefix = args[1];
        Map<String, Scenario> scenarios = new HashMap<>();
        scenarios.put("sends", RemotingClient::sends);
        scenarios.put("created", RemotingClient::created);
        scenarios.put("delays", RemotingClient::delays);
        scenarios.put("transactions", RemotingClient::transactions);
        scenarios.put("requests", RemotingClient::requests);
        scenarios.put("order", RemotingClient::order);
        scenarios.put("broadcast", RemotingClient::broadcast);
        scenarios.put("filters", RemotingClient::filters);
        scenarios.put("retries", RemotingClient::retries);
        scenarios.put("rebalance", RemotingClient::rebalance);
        scenarios.put("litepull", RemotingClient::litePull);
        scenarios.put("pull", RemotingClient::pull);
        scenarios.put("large", RemotingClient::large);
        scenarios.put("restart", RemotingClient::restart);
        scenarios.put("trace", RemotingClient::trace);
        scenarios.put("failover", () -> Failover.sends(1));
        scenarios.put("failover-threads", () -> Failover.sends(8));
        scenarios.put("failover-order", Failover::order);
        int status = 0;
        for (int i = 2; i < args.length; i++) {
            try {
                System.out.println("ok " + args[i] + " " + scenarios.get(args[i]).run());
            } catch (Exception error) {
                error.printStackTrace();
                System.out.println("failed " + args[i] + " " + String.valueOf(error).replace('\n', ' '));
                status = 1;
            }
        }
        // Threads of a client that could not be shut down must not hold the process.
        System.exit(status);
    }

    // ---------------------------------------------------------------------------------------------------- scenarios

    private static String sends() throws Exception {
        long begunMs = System.currentTimeMillis();
        Received received = new Received();
        DefaultMQPushConsumer consumer = pushConsumer("Normal", "*");
        consumer.registerMessageListener(received.concurrently());
        consumer.start();
        DefaultMQProducer producer = producer();
        producer.setCompressMsgBodyOverHowmuch(4096);
        Map<String, String> sent = new TreeMap<>();
        SendResult result = null;
        for (int i = 0; i < 20; i++) {
            Message message = message("Normal", "sync-" + i, sent);
            message.putUserProperty("number", "" + i);
            result = producer.send(message);
            check(result.getSendStatus() == SendStatus.SEND_OK, "sync: " + result);
        }
        MessageExt viewed = producer.viewMessage(prefix + "Normal", result.getMsgId());
        check("sync-19".equals(text(viewed)), "viewMessage: " + viewed);
        MessageExt byOffset = producer.viewMessage(prefix + "Normal", result.getOffsetMsgId());
        check("sync-19".equals(text(byOffset)), "viewMessage of an offset's id: " + byOffset);
        Set<String> ids = new TreeSet<>();
        for (MessageExt each : producer.queryMessage(
                prefix + "Normal", "key-sync-19", 10, begunMs, Long.MAX_VALUE).getMessageList()) {
            // Once for each node: the client asks each name of the broker.
            ids.add(each.getMsgId());
        }
        check(ids.equals(Set.of(result.getMsgId())), "queryMessage: " + ids);
        CountDownLatch answered = new CountDownLatch(20);
        Collection<Throwable> errors = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < 20; i++) {
            producer.send(message("Normal", "async-" + i, sent), new SendCallback() {
                @Override
                public void onSuccess(SendResult ignored) {
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    errors.add(error);
                    answered.countDown();
                }
            });
        }
        check(answered.await(LIMIT_MS, TimeUnit.MILLISECONDS), "async sends have no result");
        check(errors.isEmpty(), "async: " + errors);
        for (int i = 0; i < 10; i++) {
            producer.sendOneway(message("Normal", "oneway-" + i, sent));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            batch.add(message("Normal", "batch-" + i, sent));
        }
        SendResult ofBatch = producer.send(batch);
        check(ofBatch.getMsgId().split(",").length == 10, "batch: " + ofBatch);
        StringBuilder large = new StringBuilder("large-");
        for (int i = 0; i < 10_000; i++) {
            large.append("0123456789");
        }
        producer.send(message("Normal", large.toString(), sent));
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(prefix + "Normal");
        MessageQueue chosen = queues.get(queues.size() - 1);
        SendResult toQueue = producer.send(message("Normal", "chosen", sent), chosen);
        check(toQueue.getMessageQueue().equals(chosen), "queue: " + toQueue);
        received.await(sent.keySet());
        MessageExt one = received.byText.get("sync-7");
        check("sync-7".equals(one.getKeys().substring(4)), "keys: " + one);
        check("7".equals(one.getUserProperty("number")) && "A".equals(one.getTags()), "properties: " + one);
        check(received.repeated.get() == 0, received.repeated + " repeated");
        shutdown(consumer, producer);
        return "messages=" + sent.size();
    }

    private static String created() throws Exception {
        DefaultMQProducer producer = producer();
        String topic = "Created" + System.nanoTime();
        Map<String, String> sent = new TreeMap<>();
        for (int i = 0; i < 8; i++) {
            producer.send(message(topic, "m-" + i, sent));
        }
        Received received = new Received();
        DefaultMQPushConsumer consumer = pushConsumer(topic, "*");
        consumer.registerMessageListener(received.concurrently());
        consumer.start();
        received.await(sent.keySet());
        shutdown(consumer, producer);
        return "messages=" + sent.size();
    }

    private static String delays() throws Exception {
        Received received = new Received();
        DefaultMQPushConsumer consumer = pushConsumer("Delay", "*");
        consumer.registerMessageListener(received.concurrently());
        consumer.start();
        DefaultMQProducer producer = producer();
        Map<String, String> sent = new TreeMap<>();
        long begunMs = System.currentTimeMillis();
        Message byLevel = message("Delay", "level", sent);
        byLevel.setDelayTimeLevel(2);
        producer.send(byLevel);
        Message byTime = message("Delay", "time", sent);
        MessageAccessor.putProperty(byTime, "TIMER_DELAY_MS", "3000");
        producer.send(byTime);
        received.await(sent.keySet());
        long levelMs = received.timesMs.get("level") - begunMs;
        long timeMs = received.timesMs.get("time") - begunMs;
        check(levelMs >= 4_900, "level 2 (5 s) came after " + levelMs + " ms");
        check(timeMs >= 2_900, "3 s came after " + timeMs + " ms");
        if (!isOld()) {
            Message recalled = message("Delay", "recalled", new HashMap<>());
            MessageAccessor.putProperty(recalled, "TIMER_DELAY_MS", "3000");
            SendResult result = producer.send(recalled);
            Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
            Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                    .invoke(producer, prefix + "Delay", handle);
            check(result.getMsgId().equals(id), "recalled: " + id);
            Thread.sleep(5_000);
            check(!received.byText.containsKey("recalled"), "a recalled message was received");
        }
        shutdown(consumer, producer);
        return "level_ms=" + levelMs + " time_ms=" + timeMs;
    }

    private static String transactions() throws Exception {
        Received received = new Received();
        DefaultMQPushConsumer consumer = pushConsumer("Transaction", "*");
        consumer.registerMessageListener(received.concurrently());
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer("transactions-" + System.nanoTime());
        producer.setNamesrvAddr(nameServers);
        Set<String> checked = ConcurrentHashMap.newKeySet();
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.add(text(message));
                boolean commits = text(message).startsWith("commit");
                return commits ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        Map<String, String> all = new TreeMap<>();
        send(producer, message("Transaction", "commit", all), LocalTransactionState.COMMIT_MESSAGE);
        send(producer, message("Transaction", "rollback", all), LocalTransactionState.ROLLBACK_MESSAGE);
        send(producer, message("Transaction", "commit-checked", all), LocalTransactionState.UNKNOW);
        send(producer, message("Transaction", "rollback-checked", all), LocalTransactionState.UNKNOW);
        Set<String> expected = new TreeSet<>(List.of("commit", "commit-checked"));
        received.await(expected);
        Set<String> asked = new TreeSet<>(List.of("commit-checked", "rollback-checked"));
        // An end is sent one-way: on a slow machine a question may come before it, and has the same answer.
        await(() -> checked.containsAll(asked), () -> "checked: " + checked);
        check(received.byText.keySet().equals(expected), "received: " + received.byText.keySet());
        shutdown(consumer, producer);
        return "checked=" + checked.size();
    }

    private static void send(TransactionMQProducer producer, Message message, LocalTransactionState state)
            throws Exception {
        SendResult result = producer.sendMessageInTransaction(message, state);
        check(result.getSendStatus() == SendStatus.SEND_OK, "transaction: " + result);
    }

    private static String requests() throws Exception {
        DefaultMQProducer replier = producer();
        DefaultMQPushConsumer consumer = pushConsumer("Request", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("reply to " + text(message)).getBytes(StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body));
                } catch (Exception error) {
                    error.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer requester = producer();
        long longestMs = 0;
        for (int i = 0; i < 10; i++) {
            long begunMs = System.currentTimeMillis();
            Message reply = request(requester, message("Request", "r" + i, new HashMap<>()));
            if (i > 0) {
                longestMs = Math.max(longestMs, System.currentTimeMillis() - begunMs);
            }
            check(("reply to r" + i).equals(text(reply)), "reply: " + text(reply));
        }
        shutdown(consumer, requester, replier);
        return "requests=10 longest_ms=" + longestMs;
    }

    /** Clients of 5.3.3 end a request when it was sent, without its reply; their callback is called again with that. */
    private static Message request(DefaultMQProducer requester, Message message) throws Exception {
        if (isOld()) {
            return requester.request(message, 30_000);
        }
        CompletableFuture<Message> reply = new CompletableFuture<>();
        requester.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message found) {
                if (found != null) {
                    reply.complete(found);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, 30_000);
        return reply.get(LIMIT_MS, TimeUnit.MILLISECONDS);
    }

    private static boolean isOld() {
        return MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).startsWith("V4");
    }

    private static String large() throws Exception {
        ConcurrentHashMap<Integer, Integer> received = new ConcurrentHashMap<>();
        Set<String> ofBatch = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = pushConsumer("Large", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if ("B".equals(message.getTags())) {
                    ofBatch.add(text(message).substring(0, 8));
                } else {
                    received.put(java.util.Arrays.hashCode(message.getBody()), message.getBody().length);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = producer();
        java.util.Random random = new java.util.Random(7);
        Map<Integer, Integer> sent = new HashMap<>();
        // A body that cannot be compressed becomes larger by it.
        for (int size : new int[] {1 << 20, (4 << 20) - (64 << 10)}) {
            byte[] body = new byte[size];
            random.nextBytes(body);
            sent.put(java.util.Arrays.hashCode(body), size);
            producer.send(new Message(prefix + "Large", "A", body));
        }
        // Compressed.
        byte[] zeros = new byte[4 << 20];
        sent.put(java.util.Arrays.hashCode(zeros), zeros.length);
        producer.send(new Message(prefix + "Large", "A", zeros));
        List<Message> batch = new ArrayList<>();
        Set<String> expected = new TreeSet<>();
        String padding = "x".repeat(400);
        for (int i = 0; i < 5_000; i++) {
            String name = String.format("b%07d", i);
            expected.add(name);
            batch.add(new Message(prefix + "Large", "B", (name + padding).getBytes(StandardCharsets.UTF_8)));
        }
        SendResult result = producer.send(batch, 10_000);
        check(result.getMsgId().split(",").length == batch.size(), "batch: " + result.getSendStatus());
        await(() -> received.equals(sent), () -> "received: " + received + ", sent: " + sent);
        await(() -> ofBatch.equals(expected), () -> "of the batch: " + missing(expected, ofBatch));
        producer.setMaxMessageSize(8 << 20);
        byte[] tooLarge = new byte[(4 << 20) + 1];
        random.nextBytes(tooLarge);
        try {
            producer.send(new Message(prefix + "Large", "A", tooLarge));
            throw new Wrong("a body above 4 MiB was stored");
        } catch (MQBrokerException refused) {
            check(refused.getResponseCode() == 13, "refused: " + refused);
        }
        shutdown(consumer, producer);
        return "bodies=" + received.size() + " batch=" + batch.size();
    }

    /** The offsets of a group are those with which its next consumer begins. */
    private static String restart() throws Exception {
        String group = "restart-" + System.nanoTime();
        DefaultMQProducer producer = producer();
        Map<String, String> sent = new TreeMap<>();
        int repeated = 0;
        Received last = null;
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 20; i++) {
                producer.send(message("Restart", "r" + round + "-" + i, sent));
            }
            Received received = last = new Received();
            DefaultMQPushConsumer consumer = pushConsumer(group, "Restart", "*");
            consumer.registerMessageListener(received.concurrently());
            consumer.start();
            received.await(sent.keySet());
            check(received.byText.keySet().equals(sent.keySet()), "received: " + received.byText.keySet());
            if (round == 0) {
                // Pulls on their way are still received.
                consumer.suspend();
                Thread.sleep(500);
                Map<String, String> later = new TreeMap<>();
                for (int i = 0; i < 8; i++) {
                    producer.send(message("Restart", "s" + i, later));
                }
                Thread.sleep(1_000);
                int early = received.byText.size() - 20;
                check(early <= 4, "received while suspended: " + early);
                consumer.resume();
                received.await(later.keySet());
            }
            // Received is not yet done: until the client has the listener's result.
            Thread.sleep(500);
            consumer.shutdown();
            sent.clear();
        }
        shutdown(producer);
        return "rounds=3 last=" + last.byText.size() + " repeated=" + last.repeated;
    }

    private static String trace() throws Exception {
        Set<String> kinds = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer ofTraces = pushConsumer("RMQ_SYS_TRACE_TOPIC", "*");
        DefaultMQProducer producer = new DefaultMQProducer("producers-" + System.nanoTime(), (RPCHook) null, true, null);
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName("i" + ++instances + "-" + System.nanoTime());
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                "traced-" + System.nanoTime(), (RPCHook) null, new AllocateMessageQueueAveragely(), true, null);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName("i" + ++instances + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(prefix + "Trace", "*");
        Received received = new Received();
        consumer.registerMessageListener(received.concurrently());
        consumer.start();
        SendResult result = producer.send(message("Trace", "traced", new HashMap<>()));
        received.await(Set.of("traced"));
        ofTraces.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                for (String item : text(message).split("\\u0002")) {
                    if (item.contains(result.getMsgId())) {
                        kinds.add(item.split("\\u0001")[0]);
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ofTraces.start();
        Set<String> expected = Set.of("Pub", "SubBefore", "SubAfter");
        await(() -> kinds.containsAll(expected), () -> "traces: " + kinds);
        shutdown(consumer, ofTraces, producer);
        return "kinds=" + kinds.size();
    }

    private static String order() throws Exception {
        Map<Integer, List<Integer>> byQueue = new ConcurrentHashMap<>();
        Set<Integer> failed = ConcurrentHashMap.newKeySet();
        AtomicInteger count = new AtomicInteger();
        DefaultMQPushConsumer consumer = pushConsumer("Ordered", "*");
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                int number = Integer.parseInt(text(message));
                // Fails once: the queue must wait for it.
                if (number % 50 == 0 && failed.add(number)) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                byQueue.computeIfAbsent(message.getQueueId(), id -> Collections.synchronizedList(new ArrayList<>()))
                        .add(number);
                count.incrementAndGet();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 200; i++) {
            producer.send(message("Ordered", "" + i, new HashMap<>()),
                    (queues, message, argument) -> queues.get((Integer) argument % queues.size()), i % 4);
        }
        await(() -> count.get() >= 200, () -> "consumed: " + count);
        for (List<Integer> numbers : byQueue.values()) {
            check(numbers.size() == 50, "a queue: " + numbers);
            for (int i = 1; i < numbers.size(); i++) {
                check(numbers.get(i) == numbers.get(i - 1) + 4, "order: " + numbers);
            }
        }
        shutdown(consumer, producer);
        return "messages=200 queues=" + byQueue.size();
    }

    private static String broadcast() throws Exception {
        String group = "broadcast-" + System.nanoTime();
        Received[] received = {new Received(), new Received()};
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (Received each : received) {
            DefaultMQPushConsumer consumer = pushConsumer(group, "Broadcast", "*");
            setBroadcasting(consumer);
            consumer.registerMessageListener(each.concurrently());
            consumer.start();
            consumers.add(consumer);
        }
        DefaultMQProducer producer = producer();
        Map<String, String> sent = new TreeMap<>();
        for (int i = 0; i < 20; i++) {
            producer.send(message("Broadcast", "b" + i, sent));
        }
        for (Received each : received) {
            each.await(sent.keySet());
        }
        shutdown(consumers.get(0), consumers.get(1), producer);
        return "messages=20 consumers=2";
    }

    private static String filters() throws Exception {
        Received byTag = new Received();
        Received bySql = new Received();
        DefaultMQPushConsumer first = pushConsumer("Filter", "B || C");
        first.registerMessageListener(byTag.concurrently());
        first.start();
        DefaultMQPushConsumer second = pushConsumer("Filter", "*");
        second.subscribe(prefix + "Filter", MessageSelector.bySql("number > 15"));
        second.registerMessageListener(bySql.concurrently());
        second.start();
        DefaultMQProducer producer = producer();
        Set<String> tagged = new TreeSet<>();
        Set<String> selected = new TreeSet<>();
        for (int i = 0; i < 20; i++) {
            String tag = "ABCD".substring(i % 4, i % 4 + 1);
            Message message = new Message(prefix + "Filter", tag, ("f" + i).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("number", "" + i);
            producer.send(message);
            if (tag.equals("B") || tag.equals("C")) {
                tagged.add("f" + i);
            }
            if (i > 15) {
                selected.add("f" + i);
            }
        }
        byTag.await(tagged);
        bySql.await(selected);
        check(byTag.byText.keySet().equals(tagged), "by tag: " + byTag.byText.keySet());
        check(bySql.byText.keySet().equals(selected), "by SQL: " + bySql.byText.keySet());
        shutdown(first, second, producer);
        return "by_tag=" + tagged.size() + " by_sql=" + selected.size();
    }

    private static String retries() throws Exception {
        String group = "retries-" + System.nanoTime();
        Map<String, List<Integer>> attempts = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = pushConsumer(group, "Retry", "*");
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            MessageExt message = messages.get(0);
            attempts.computeIfAbsent(text(message), id -> Collections.synchronizedList(new ArrayList<>()))
                    .add(message.getReconsumeTimes());
            boolean succeeds = text(message).equals("second") && message.getReconsumeTimes() == 1;
            return succeeds ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        DefaultMQProducer producer = producer();
        producer.send(message("Retry", "second", new HashMap<>()));
        producer.send(message("Retry", "never", new HashMap<>()));
        await(() -> attempts.getOrDefault("never", List.of()).size() >= 3, () -> "attempts: " + attempts);
        DefaultMQPushConsumer ofDead = pushConsumer("%DLQ%" + group, "*");
        Received dead = new Received();
        ofDead.registerMessageListener(dead.concurrently());
        ofDead.start();
        dead.await(Set.of("never"));
        check(attempts.get("second").equals(List.of(0, 1)), "attempts: " + attempts);
        check(attempts.get("never").equals(List.of(0, 1, 2)), "attempts: " + attempts);
        check((prefix + "Retry").equals(dead.byText.get("never").getProperty("RETRY_TOPIC")), "dead: " + dead.byText);
        shutdown(consumer, ofDead, producer);
        return "attempts=" + attempts;
    }

    private static String rebalance() throws Exception {
        String group = "rebalance-" + System.nanoTime();
        Received[] received = {new Received(), new Received()};
        DefaultMQPushConsumer first = pushConsumer(group, "Rebalance", "*");
        first.registerMessageListener(received[0].concurrently());
        first.start();
        DefaultMQProducer producer = producer();
        Set<String> sent = new TreeSet<>();
        int number = 0;
        long begunMs = System.currentTimeMillis();
        DefaultMQPushConsumer second = pushConsumer(group, "Rebalance", "*");
        second.registerMessageListener(received[1].concurrently());
        second.start();
        // Until both have a share.
        while (received[0].queues.size() < 1 || received[1].queues.size() < 1) {
            check(System.currentTimeMillis() - begunMs < LIMIT_MS, "the second has no queue");
            sent.add(send(producer, "Rebalance", number++));
            Thread.sleep(10);
        }
        long sharedMs = System.currentTimeMillis() - begunMs;
        await(() -> union(received).containsAll(sent), () -> "not received: " + missing(sent, union(received)));
        Thread.sleep(1_000);
        received[0].queues.clear();
        received[1].queues.clear();
        for (int i = 0; i < 40; i++) {
            sent.add(send(producer, "Rebalance", number++));
        }
        await(() -> union(received).containsAll(sent), () -> "not received: " + missing(sent, union(received)));
        check(received[0].queues.size() == 2 && received[1].queues.size() == 2,
                "shares: " + received[0].queues + received[1].queues);
        second.shutdown();
        begunMs = System.currentTimeMillis();
        received[0].queues.clear();
        while (received[0].queues.size() < 4) {
            check(System.currentTimeMillis() - begunMs < LIMIT_MS, "the first has not all: " + received[0].queues);
            sent.add(send(producer, "Rebalance", number++));
            Thread.sleep(10);
        }
        long takenMs = System.currentTimeMillis() - begunMs;
        await(() -> union(received).containsAll(sent), () -> "not received: " + missing(sent, union(received)));
        shutdown(first, producer);
        int repeated = received[0].repeated.get() + received[1].repeated.get();
        return "shared_ms=" + sharedMs + " taken_ms=" + takenMs + " repeated=" + repeated;
    }

    private static String litePull() throws Exception {
        DefaultMQProducer producer = producer();
        Map<String, String> sent = new TreeMap<>();
        for (int i = 0; i < 40; i++) {
            producer.send(message("LitePull", "l" + i, sent));
        }
        String group = "litepull-" + System.nanoTime();
        DefaultLitePullConsumer consumer = litePullConsumer(group);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(prefix + "LitePull", "*");
        consumer.start();
        Set<String> received = polled(consumer, sent.keySet());
        check(received.equals(sent.keySet()), "received: " + received);
        consumer.commitSync();
        Set<MessageQueue> queues = new HashSet<>(consumer.fetchMessageQueues(prefix + "LitePull"));
        for (MessageQueue queue : queues) {
            long committed = consumer.committed(queue);
            await(() -> consumer.committed(queue) == 10, () -> "committed: " + committed);
        }
        consumer.shutdown();
        DefaultLitePullConsumer assigned = litePullConsumer(group);
        assigned.setAutoCommit(false);
        assigned.start();
        assigned.assign(queues);
        for (MessageQueue queue : queues) {
            assigned.seek(queue, 5);
        }
        Set<String> again = new TreeSet<>();
        await(() -> {
            for (MessageExt message : assigned.poll(500)) {
                check(message.getQueueOffset() >= 5, "offset: " + message);
                again.add(text(message));
            }
            return again.size() >= 20;
        }, () -> "received: " + again);
        check(again.size() == 20, "received: " + again);
        assigned.shutdown();
        producer.shutdown();
        return "messages=" + sent.size() + " after_seek=" + again.size();
    }

    private static Set<String> polled(DefaultLitePullConsumer consumer, Set<String> expected) throws Exception {
        Set<String> received = new TreeSet<>();
        await(() -> {
            for (MessageExt message : consumer.poll(500)) {
                received.add(text(message));
            }
            return received.containsAll(expected);
        }, () -> "not received: " + missing(expected, received));
        return received;
    }

    @SuppressWarnings("deprecation")
    private static String pull() throws Exception {
        DefaultMQProducer producer = producer();
        Map<String, String> sent = new TreeMap<>();
        long begunMs = System.currentTimeMillis();
        for (int i = 0; i < 40; i++) {
            producer.send(message("Pull", "p" + i, sent));
        }
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pull-" + System.nanoTime());
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName("i" + ++instances + "-" + System.nanoTime());
        consumer.start();
        Set<String> received = new TreeSet<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(prefix + "Pull")) {
            check(consumer.minOffset(queue) == 0 && consumer.maxOffset(queue) == 10, "offsets of " + queue);
            check(consumer.searchOffset(queue, begunMs - 60_000) == 0, "searchOffset of " + queue);
            long offset = 0;
            while (offset < 10) {
                PullResult result = consumer.pullBlockIfNotFound(queue, "*", offset, 4);
                check(result.getNextBeginOffset() > offset, "pull: " + result);
                for (MessageExt message : result.getMsgFoundList()) {
                    received.add(text(message));
                }
                offset = result.getNextBeginOffset();
            }
            consumer.updateConsumeOffset(queue, offset);
            consumer.getOffsetStore().persist(queue);
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
            long stored = consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
            check(stored == 10, "stored offset: " + stored);
            // At the end: the pull is held, until a message comes.
            if (queue.getQueueId() == 0) {
                AtomicReference<Exception> failure = new AtomicReference<>();
                Thread later = new Thread(() -> {
                    try {
                        Thread.sleep(1_000);
                        producer.send(message("Pull", "held", new HashMap<>()), queue);
                    } catch (Exception error) {
                        failure.set(error);
                    }
                });
                later.start();
                long heldMs = System.currentTimeMillis();
                PullResult result = consumer.pullBlockIfNotFound(queue, "*", 10, 4);
                heldMs = System.currentTimeMillis() - heldMs;
                later.join();
                check(failure.get() == null, "send: " + failure.get());
                check(result.getMsgFoundList() != null && heldMs >= 900, "held " + heldMs + " ms: " + result);
            }
        }
        check(received.equals(sent.keySet()), "not received: " + missing(sent.keySet(), received));
        consumer.shutdown();
        producer.shutdown();
        return "messages=" + received.size();
    }

    // ------------------------------------------------------------------------------------------------------ helpers

    /** What a push consumer got. */
    static final class Received {
        final Map<String, MessageExt> byText = new ConcurrentHashMap<>();
        final Map<String, Long> timesMs = new ConcurrentHashMap<>();
        final Set<Integer> queues = ConcurrentHashMap.newKeySet();
        final AtomicInteger repeated = new AtomicInteger();
        final AtomicLong gapMs = new AtomicLong();
        volatile long lastMs = System.currentTimeMillis();

        MessageListenerConcurrently concurrently() {
            return (messages, context) -> {
                for (MessageExt message : messages) {
                    long nowMs = System.currentTimeMillis();
                    gapMs.accumulateAndGet(nowMs - lastMs, Math::max);
                    lastMs = nowMs;
                    timesMs.put(text(message), lastMs);
                    queues.add(message.getQueueId());
                    if (byText.put(text(message), message) != null) {
                        repeated.incrementAndGet();
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            };
        }

        void await(Set<String> expected) throws Exception {
            RemotingClient.await(() -> byText.keySet().containsAll(expected),
                    () -> "not received: " + missing(expected, byText.keySet()));
        }
    }

    static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers-" + System.nanoTime());
        producer.setNamesrvAddr(nameServers);
        producer.setInstanceName("i" + ++instances + "-" + System.nanoTime());
        // On a slow machine the first send takes some seconds.
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    static DefaultMQPushConsumer pushConsumer(String topic, String tags) throws Exception {
        return pushConsumer("consumers-" + System.nanoTime(), topic, tags);
    }

    private static DefaultMQPushConsumer pushConsumer(String group, String topic, String tags) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName("i" + ++instances + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        boolean isOfBroker = topic.startsWith("%") || topic.startsWith("RMQ_SYS_");
        consumer.subscribe(isOfBroker ? topic : prefix + topic, tags);
        return consumer;
    }

    private static DefaultLitePullConsumer litePullConsumer(String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setInstanceName("i" + ++instances + "-" + System.nanoTime());
        return consumer;
    }

    /** MessageModel is in another package since 5.0. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setBroadcasting(DefaultMQPushConsumer consumer) throws Exception {
        Class model = consumer.getMessageModel().getClass();
        DefaultMQPushConsumer.class.getMethod("setMessageModel", model)
                .invoke(consumer, Enum.valueOf(model, "BROADCASTING"));
    }

    static Message message(String topic, String text, Map<String, String> sent) {
        sent.put(text, topic);
        String key = "key-" + (text.length() > 50 ? "large" : text);
        return new Message(prefix + topic, "A", key, text.getBytes(StandardCharsets.UTF_8));
    }

    private static String send(DefaultMQProducer producer, String topic, int number) throws Exception {
        producer.send(message(topic, "m" + number, new HashMap<>()));
        return "m" + number;
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static Set<String> union(Received[] all) {
        Set<String> found = new TreeSet<>();
        for (Received each : all) {
            found.addAll(each.byText.keySet());
        }
        return found;
    }

    static String missing(Set<String> expected, Set<String> found) {
        Set<String> rest = new TreeSet<>(expected);
        rest.removeAll(found);
        String text = rest.size() + " of " + expected.size() + " " + rest;
        return text.substring(0, Math.min(300, text.length()));
    }

    static void shutdown(Object... clients) {
        for (Object each : clients) {
            if (each instanceof DefaultMQPushConsumer) {
                ((DefaultMQPushConsumer) each).shutdown();
            } else {
                ((DefaultMQProducer) each).shutdown();
            }
        }
    }

    static void check(boolean holds, String text) throws Wrong {
        if (!holds) {
            throw new Wrong(text);
        }
    }

    static void await(Condition condition, java.util.function.Supplier<String> text) throws Exception {
        long endMs = System.currentTimeMillis() + LIMIT_MS;
        while (!condition.holds()) {
            check(System.currentTimeMillis() < endMs, text.get());
            Thread.sleep(20);
        }
    }
}
