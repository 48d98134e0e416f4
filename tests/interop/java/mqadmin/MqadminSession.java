import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of mqadmin in one JVM. Each line of the input is `seconds TAB argument TAB argument ...`; the answer is
 * a line `bytes state`, and what the command has printed. `@names` prints the names of all commands, and
 * `@clients nameServer topic` starts a producer and a consumer, which stay connected.
 */
public final class MqadminSession {
    private static final int LIMIT_MS = 60_000;

    private static final class Exit extends SecurityException {
        Exit(int code) {
            super("exit " + code);
        }
    }

    /** A command keeps what its last run left, so each run gets new ones. */
    private static final class Commands extends MQAdminStartup {
        static void forget() {
            SUB_COMMANDS.clear();
        }

        static void printNames() {
            forget();
            initCommand();
            SUB_COMMANDS.forEach(each -> System.out.println(each.commandName()));
        }
    }

    private static void startClients(String nameServer, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("P");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("producing");
        producer.setMqClientApiTimeout(LIMIT_MS);
        producer.setSendMsgTimeout(LIMIT_MS);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("G");
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("consuming");
        consumer.setMqClientApiTimeout(LIMIT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        CountDownLatch consumed = new CountDownLatch(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> consumed.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int number = 1; number <= 2; number++) {
            Message message = new Message(topic, "TagA", "k" + number, ("body" + number).getBytes());
            SendResult sent = producer.send(message);
            System.out.println(sent.getMsgId() + " " + sent.getOffsetMsgId() + " "
                + sent.getMessageQueue().getQueueId() + " " + sent.getQueueOffset());
        }
        consumed.await();
        consumer.getDefaultMQPushConsumerImpl().getOffsetStore().persistAll(
            consumer.fetchSubscribeMessageQueues(topic));
        System.out.println(consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId());
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream own = System.out;
        System.setSecurityManager(new SecurityManager() {
            @Override
            public void checkPermission(java.security.Permission permission) {
            }

            @Override
            public void checkExit(int code) {
                throw new Exit(code);
            }
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            String[] arguments = java.util.Arrays.copyOfRange(parts, 1, parts.length);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream caught = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(caught);
            System.setErr(caught);
            String[] state = {"done"};
            Thread thread = new Thread(() -> {
                try {
                    if (arguments[0].equals("@names")) {
                        Commands.printNames();
                    } else if (arguments[0].equals("@clients")) {
                        startClients(arguments[1], arguments[2]);
                    } else {
                        Commands.forget();
                        MQAdminStartup.main0(arguments, null);
                    }
                } catch (Exit exit) {
                    state[0] = exit.getMessage();
                } catch (Throwable thrown) {
                    state[0] = "thrown";
                    thrown.printStackTrace(caught);
                }
            });
            thread.start();
            thread.join(Math.round(1000 * Double.parseDouble(parts[0])));
            if (thread.isAlive()) {
                state[0] = "late";
                thread.interrupt();
            }
            byte[] bytes = printed.toByteArray();
            own.println(bytes.length + " " + state[0]);
            own.write(bytes);
            own.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
