/* Sends and receives with the official Java client over TLS, with access keys; started from its source by `java`:

     java -cp JAR java_client_with_keys.java ENDPOINTS TOPIC CASE...

   A case is `name,key,secret,push`, or `name,key,secret,` without a push consumer; with an empty key the client has no
   credentials. Prints one line of JSON, for each case: the error of a send, that of a receive, what was received and
   acknowledged, and the error of the start of a push consumer. TLS is the client's default;
   versions before 5.0.4 always use it. */

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

class JavaClientWithKeys {
  static final long LIMIT_MS = 60_000;
  static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  static String topic;

  interface Action {
    void run() throws Exception;
  }

  public static void main(String[] arguments) {
    topic = arguments[1];
    List<String> found = new ArrayList<>();
    for (int index = 2; index < arguments.length; index++) {
      String[] parts = arguments[index].split(",", -1);
      // By default 3 s, which a busy machine needs to load the classes for the first call.
      ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
          .setRequestTimeout(Duration.ofSeconds(20));
      if (!parts[1].isEmpty()) {
        builder.setCredentialProvider(new StaticSessionCredentialsProvider(parts[1], parts[2]));
      }
      ClientConfiguration configuration = builder.build();
      List<String> bodies = new ArrayList<>();
      String send = errorOf(() -> send(configuration, parts[0]));
      String receive = errorOf(() -> receive(configuration, bodies));
      String push = parts[3].equals("push") ? errorOf(() -> push(configuration)) : "";
      String quoted = bodies.stream().map(JavaClientWithKeys::quoted).collect(Collectors.joining(",", "[", "]"));
      found.add(quoted(parts[0]) + ":{\"send\":" + quoted(send) + ",\"receive\":" + quoted(receive)
          + ",\"bodies\":" + quoted + ",\"push\":" + quoted(push) + "}");
    }
    System.out.println(found.stream().collect(Collectors.joining(",", "{", "}")));
    System.out.flush();
    // Threads of the client may still run.
    Runtime.getRuntime().halt(0);
  }

  static void send(ClientConfiguration configuration, String body) throws Exception {
    try (Producer producer =
        PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build()) {
      producer.send(PROVIDER.newMessageBuilder().setTopic(topic)
          .setBody(body.getBytes(StandardCharsets.UTF_8)).build());
    }
  }

  /* Receive and acknowledge a message; its body is added to a list. */
  static void receive(ClientConfiguration configuration, List<String> bodies) throws Exception {
    try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
        .setConsumerGroup("G" + topic).setAwaitDuration(Duration.ofSeconds(5))
        .setSubscriptionExpressions(Map.of(topic, new FilterExpression("*"))).build()) {
      long end = System.currentTimeMillis() + LIMIT_MS;
      while (bodies.isEmpty() && System.currentTimeMillis() < end) {
        for (MessageView view : consumer.receive(32, Duration.ofSeconds(30))) {
          consumer.ack(view);
          bodies.add(StandardCharsets.UTF_8.decode(view.getBody()).toString());
        }
      }
    }
  }

  /* Start a push consumer, which is not closed: that waits for its last receive. */
  static void push(ClientConfiguration configuration) throws Exception {
    PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup("P" + topic)
        .setSubscriptionExpressions(Map.of(topic, new FilterExpression("*")))
        .setMessageListener(view -> ConsumeResult.SUCCESS).build();
  }

  /* Return the type and the text of an error and of its causes; empty: none. */
  static String errorOf(Action action) {
    StringBuilder found = new StringBuilder();
    try {
      action.run();
    } catch (Throwable thrown) {
      for (Throwable each = thrown; each != null; each = each.getCause()) {
        found.append(each).append("; ");
      }
    }
    return found.toString();
  }

  static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char each : text.toCharArray()) {
      quoted.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
    }
    return quoted.append('"').toString();
  }
}
