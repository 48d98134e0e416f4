package interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/**
 * Leaves a store in which messages wait: a broker delivers, ends, checks, rolls and recalls some, and is stopped.
 *
 * <p>Topics are delays, timers and bills, of one queue each. Names are the bodies: {@code done} ones were delivered or
 * ended by this broker, {@code late} ones right before it stopped.
 */
final class WaitingWriter {
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
    private static final String TIMER_TOPIC = "rmq_sys_wheel_timer";
    private static final int HOUR_S = 3_600;
    private static final int LAST_LEVEL = 18;
    // After a shutdown, which takes ten seconds.
    private static final int SOON_S = 30;
    private static final int SOON_LEVEL = 4;

    private final RunningBroker broker;
    private final Consumer<Object> results;

    private WaitingWriter(RunningBroker broker, Consumer<Object> results) {
        this.broker = broker;
        this.results = results;
    }

    static void write(Options options, Consumer<Object> results) throws Exception {
        Properties settings = new Properties();
        // Ends are written down well before the first check, after six seconds.
        settings.setProperty("transactionOpBatchInterval", "1000");
        settings.setProperty("transactionCheckInterval", "1000");
        settings.setProperty("transactionCheckMax", "1000");
        settings.setProperty("recallMessageEnable", "true");
        // Messages for a later time are put again each four seconds, in place of two days.
        settings.setProperty("timerRollWindowSlot", "4");
        settings.putAll(options.config());
        RunningBroker broker = RunningBroker.start(options.directory().toString(), settings);
        WaitingWriter writer = new WaitingWriter(broker, results);
        writer.putWhatIsDone();
        writer.putWhatWaits();
        if (!options.isHalted()) {
            broker.close();
        }
    }

    private void putWhatIsDone() throws Exception {
        for (int number = 0; number < 3; number++) {
            delayed("delay-done-" + number, 1);
        }
        for (int number = 0; number < 2; number++) {
            timed("timer-done-" + number, 1);
            timed("timer-rolled-" + number, HOUR_S);
        }
        broker.recall(timed("timer-recalled", HOUR_S));
        half("half-checked-0", "");
        half("half-checked-1", "");
        half("half-immune", "600");
        for (int number = 0; number < 2; number++) {
            broker.end(half("half-committed-" + number, ""), MessageSysFlag.TRANSACTION_COMMIT_TYPE);
            broker.end(half("half-rolled-back-" + number, ""), MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
        }
        broker.await("delays are delivered", () -> broker.count("delays", 0) == 3);
        broker.await("timers are delivered", () -> broker.count("timers", 0) == 2);
        broker.await("transactions are committed", () -> broker.count("bills", 0) == 2);
        broker.await("ends are written down", () -> broker.hasOps(4));
        // Each is put again with the number of its checks, and the one that must not be checked yet, too.
        broker.await("transactions are checked twice", () -> broker.count(HALF_TOPIC, 0) >= 7 + 6);
        // Three messages, a recall, and those that are put again.
        broker.await("timers are rolled", () -> broker.count(TIMER_TOPIC, 0) >= 6 + 2);
    }

    private void putWhatWaits() throws Exception {
        for (int number = 0; number < 2; number++) {
            delayed("delay-next-" + number, SOON_LEVEL);
            delayed("delay-far-" + number, LAST_LEVEL);
            timed("timer-next-" + number, SOON_S);
            timed("timer-far-" + number, HOUR_S);
        }
        half("half-new", "");
        delayed("delay-late", 1);
        broker.await("the last delay is delivered", () -> broker.count("delays", 0) == 4);
        broker.end(half("half-committed-late", ""), MessageSysFlag.TRANSACTION_COMMIT_TYPE);
    }

    private void delayed(String body, int level) throws Exception {
        Message message = message("delays", body);
        message.setDelayTimeLevel(level);
        sent(broker.send(message, 0));
    }

    private RunningBroker.Sent timed(String body, int seconds) throws Exception {
        Message message = message("timers", body);
        message.setDeliverTimeMs(System.currentTimeMillis() + seconds * 1_000L);
        return sent(broker.send(message, 0));
    }

    private RunningBroker.Sent half(String body, String immunityS) throws Exception {
        Message message = message("bills", body);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_PRODUCER_GROUP, RunningBroker.GROUP);
        if (!immunityS.isEmpty()) {
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, immunityS);
        }
        return sent(broker.send(message, MessageSysFlag.TRANSACTION_PREPARED_TYPE));
    }

    private static Message message(String topic, String body) {
        return new Message(topic, "tag", "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    private RunningBroker.Sent sent(RunningBroker.Sent sent) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("body", new String(sent.message().getBody(), StandardCharsets.UTF_8));
        line.put("uniqKey", MessageClientIDSetter.getUniqID(sent.message()));
        line.put("queueOffset", sent.queueOffset());
        line.put("physicalOffset", sent.physicalOffset());
        results.accept(line);
        return sent;
    }
}
