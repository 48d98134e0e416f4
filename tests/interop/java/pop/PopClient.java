import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;

/**
 * RocketMQ's push consumer of version 5 in the mode POP, with a broker of ours. Arguments: the name servers, a topic with
 * messages or none, a group. Prints one line: the messages that it has got, and how often the one that it returned.
 */
public final class PopClient {
    private static final int MESSAGES = 40;
    private static final long LIMIT_S = 60;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        String group = arguments[2];
        DefaultMQProducer producer = new DefaultMQProducer("pop-producer");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        MQClientAPIImpl calls = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        String broker = calls.getTopicRouteInfoFromNameServer(topic, 3_000).getBrokerDatas().get(0).selectBrokerAddr();
        calls.setMessageRequestMode(broker, topic, group, MessageRequestMode.POP, 0, 5_000);

        Set<String> bodies = ConcurrentHashMap.newKeySet();
        AtomicInteger withHandle = new AtomicInteger();
        AtomicInteger again = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setClientRebalance(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (message.getProperty(MessageConst.PROPERTY_POP_CK) != null) {
                    withHandle.incrementAndGet();
                }
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (body.equals("7") && message.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                again.addAndGet(message.getReconsumeTimes());
                bodies.add(body);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int number = 0; number < MESSAGES; number++) {
            producer.send(new Message(topic, "", Integer.toString(number).getBytes(StandardCharsets.UTF_8)));
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        while (bodies.size() < MESSAGES && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        // Acknowledgements are sent after the listener has returned.
        Thread.sleep(1_000);
        consumer.shutdown();
        producer.shutdown();
        System.out.println("messages=" + bodies.size() + " handles=" + withHandle + " again=" + again);
        // Threads of the client that are not daemons live on after the shutdown.
        System.exit(0);
    }
}
