package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.RecallMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A whole broker of RocketMQ, without a name server, and a producer that sends it requests as its client does. */
final class RunningBroker implements AutoCloseable {
    static final String GROUP = "payments";
    private static final long WITHIN_MS = 60_000;
    private static final long POLL_MS = 5;
    private static final int REQUEST_WITHIN_MS = 30_000;

    /**
     * A message that the broker has.
     *
     * @param queueOffset in the queue where it waits
     * @param physicalOffset in the log
     * @param recallHandle of a message for a time; else null
     */
    record Sent(Message message, long queueOffset, long physicalOffset, String recallHandle) {
    }

    private final BrokerController broker;
    private final NettyRemotingClient client;

    private RunningBroker(BrokerController broker, NettyRemotingClient client) {
        this.broker = broker;
        this.client = client;
    }

    /**
     * Starts a broker on a free port of loopback.
     *
     * @param settings of BrokerConfig and MessageStoreConfig
     */
    static RunningBroker start(String directory, Properties settings) throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName("broker-a");
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(0);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(directory);
        store.setHaListenPort(0);
        store.setFileReservedTime(24 * 365 * 50);
        store.setCleanFileForciblyEnable(false);
        store.setDiskMaxUsedSpaceRatio(95);
        MixAll.properties2Object(settings, config);
        MixAll.properties2Object(settings, store);
        BrokerController broker = new BrokerController(config, server, new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new IllegalStateException(directory + ": the broker does not begin");
        }
        broker.start();
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        return new RunningBroker(broker, client);
    }

    /** Sends a message with an id, as a client does; sysFlag is that of a half message for those of transactions. */
    Sent send(Message message, int sysFlag) throws Exception {
        MessageClientIDSetter.setUniqID(message);
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup(GROUP);
        header.setTopic(message.getTopic());
        header.setDefaultTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC);
        header.setDefaultTopicQueueNums(1);
        header.setQueueId(0);
        header.setSysFlag(sysFlag);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(message.getFlag());
        header.setProperties(MessageDecoder.messageProperties2String(message.getProperties()));
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        header.setBatch(false);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.SEND_MESSAGE, header);
        request.setBody(message.getBody());
        RemotingCommand answer = ask(request);
        SendMessageResponseHeader sent = answer.decodeCommandCustomHeader(SendMessageResponseHeader.class);
        long physicalOffset = MessageDecoder.decodeMessageId(sent.getMsgId()).getOffset();
        return new Sent(message, sent.getQueueOffset(), physicalOffset, sent.getRecallHandle());
    }

    /** Ends a transaction: MessageSysFlag's TRANSACTION_COMMIT_TYPE or TRANSACTION_ROLLBACK_TYPE. */
    void end(Sent half, int ending) throws Exception {
        EndTransactionRequestHeader header = new EndTransactionRequestHeader();
        header.setTopic(half.message().getTopic());
        header.setProducerGroup(GROUP);
        header.setTranStateTableOffset(half.queueOffset());
        header.setCommitLogOffset(half.physicalOffset());
        header.setCommitOrRollback(ending);
        header.setMsgId(MessageClientIDSetter.getUniqID(half.message()));
        header.setTransactionId(MessageClientIDSetter.getUniqID(half.message()));
        ask(RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header));
    }

    /** Takes back a message for a time. */
    void recall(Sent timer) throws Exception {
        RecallMessageRequestHeader header = new RecallMessageRequestHeader();
        header.setProducerGroup(GROUP);
        header.setTopic(timer.message().getTopic());
        header.setRecallHandle(timer.recallHandle());
        ask(RemotingCommand.createRequestCommand(RequestCode.RECALL_MESSAGE, header));
    }

    private RemotingCommand ask(RemotingCommand request) throws Exception {
        String address = "127.0.0.1:" + broker.getRemotingServer().localListenPort();
        RemotingCommand answer = client.invokeSync(address, request, REQUEST_WITHIN_MS);
        if (answer.getCode() != ResponseCode.SUCCESS) {
            throw new IllegalStateException(request + ": " + answer);
        }
        return answer;
    }

    /** Returns the number of messages in a queue. */
    long count(String topic, int queueId) {
        try {
            return broker.getMessageStore().getMaxOffsetInQueue(topic, queueId);
        } catch (Exception noQueue) {
            throw new IllegalStateException(topic, noQueue);
        }
    }

    /** Returns the bodies of the first messages of a queue. */
    List<String> bodies(String topic, int queueId) {
        List<String> found = new ArrayList<>();
        var result = broker.getMessageStore().getMessage("interop", topic, queueId, 0, 32, null);
        if (result != null && result.getMessageBufferList() != null) {
            result.getMessageBufferList().forEach(buffer ->
                found.add(new String(MessageDecoder.decode(buffer).getBody(), StandardCharsets.UTF_8)));
            result.release();
        }
        return found;
    }

    /** Returns whether op messages name this number of half messages, or more. */
    boolean hasOps(int count) {
        String all = bodies("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0).stream().collect(Collectors.joining());
        return all.chars().filter(each -> each == ',').count() >= count;
    }

    /** Waits for a condition. */
    void await(String what, BooleanSupplier isDone) throws InterruptedException {
        long giveUpAt = System.nanoTime() + WITHIN_MS * 1_000_000;
        while (!isDone.getAsBoolean()) {
            if (System.nanoTime() > giveUpAt) {
                throw new IllegalStateException("not in time: " + what);
            }
            Thread.sleep(POLL_MS);
        }
    }

    @Override
    public void close() {
        client.shutdown();
        broker.shutdown();
    }
}
