/* Scenarios with the official Java client, `rocketmq-client-java`, unchanged; started from its source by `java`:

     java -cp JAR official_java_client.java ENDPOINTS SCENARIO plain|tls [KEY SECRET]

   Uses only what versions from 5.0.0 on have, and by reflection what later ones have. Prints one line of JSON: what was
   observed. The tests compare it (`test_official_java_client`). */

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

class OfficialJavaClient {
  static final long LIMIT_MS = 60_000;
  static final int LARGE = 4 << 20;
  static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  static ClientConfiguration configuration;

  public static void main(String[] arguments) {
    int status = 0;
    try {
      System.out.println(json(run(arguments)));
    } catch (Throwable error) {
      error.printStackTrace();
      status = 1;
    }
    System.out.flush();
    // Threads of the client may still run.
    Runtime.getRuntime().halt(status);
  }

  static Map<String, Object> run(String[] arguments) throws Exception {
    // By default 3 s, which a busy machine needs to load the classes for the first call.
    ClientConfigurationBuilder builder =
        ClientConfiguration.newBuilder().setEndpoints(arguments[0]).setRequestTimeout(Duration.ofSeconds(20));
    if (arguments[2].equals("plain")) {
      // From 5.0.5 on; earlier ones always use TLS.
      ClientConfigurationBuilder.class.getMethod("enableSsl", boolean.class).invoke(builder, false);
    }
    if (arguments.length > 3) {
      builder.setCredentialProvider(new StaticSessionCredentialsProvider(arguments[3], arguments[4]));
    }
    configuration = builder.build();
    switch (arguments[1]) {
      case "kinds":
        return kinds("NORMAL", "FIFO", "DELAY", "TRANSACTION");
      case "kinds-topic-by-topic":
        return kinds("TRANSACTION");
      case "redelivery":
        return redelivery();
      case "dead":
        return dead();
      case "errors":
        return errors();
      case "load":
        return load();
      case "speed":
        return speed();
      default:
        throw new IllegalArgumentException(arguments[1]);
    }
  }

  // ------------------------------------------------------------------------------------------------------- scenarios

  /* Send a message of each kind, and receive it. With fewer topics at the producer's start each consumer has one topic:
     version 5.0.0 writes the settings of several from several threads at once, and then may never start. */
  static Map<String, Object> kinds(String... topics) throws Exception {
    List<String> asked = new ArrayList<>();
    Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
        .setTopics(topics)
        .setTransactionChecker(view -> {
          String body = text(view);
          synchronized (asked) {
            asked.add(body);
          }
          return body.equals("orphan") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
        }).build();
    SendReceipt receipt = producer.send(message("NORMAL", "normal").setTag("A").setKeys("k1", "k2")
        .addProperty("a", "7").build());
    producer.send(message("NORMAL", "other").setTag("B").addProperty("a", "1").build());
    byte[] large = new byte[LARGE];
    Arrays.fill(large, (byte) 'x');
    producer.send(PROVIDER.newMessageBuilder().setTopic("NORMAL").setTag("large").setBody(large).build());
    for (int number = 0; number < 5; number++) {
      producer.send(message("FIFO", String.valueOf(number)).setMessageGroup("g").build());
    }
    long due = System.currentTimeMillis() + 3000;
    producer.send(message("DELAY", "delay").setDeliveryTimestamp(due).build());
    SendReceipt late = producer.send(message("DELAY", "recalled").setDeliveryTimestamp(due + 1000).build());
    boolean isRecalled = recall(producer, "DELAY", late);
    for (String body : new String[] {"committed", "rolled back", "orphan"}) {
      Transaction transaction = producer.beginTransaction();
      producer.send(message("TRANSACTION", body).build(), transaction);
      if (body.equals("committed")) {
        transaction.commit();
      } else if (body.equals("rolled back")) {
        transaction.rollback();
      }
    }
    Map<String, Object> found = new TreeMap<>();
    SimpleConsumer byTag = simple("GNORMAL", Map.of("NORMAL", new FilterExpression("A || C")));
    MessageView first = received(byTag, 1).get(0);
    found.put("NORMAL", List.of(text(first)));
    byTag.close();
    SimpleConsumer bySql = simple("GSQL",
        Map.of("NORMAL", new FilterExpression("a BETWEEN 5 AND 9 AND TAGS = 'A'", FilterExpressionType.SQL92)));
    found.put("SQL", texts(received(bySql, 1)));
    bySql.close();
    SimpleConsumer largest = simple("Glarge", Map.of("NORMAL", new FilterExpression("large")));
    ByteBuffer body = received(largest, 1).get(0).getBody();
    largest.close();
    Map<String, Integer> counts = Map.of("FIFO", 5, "DELAY", isRecalled ? 1 : 2, "TRANSACTION", 2);
    List<MessageView> others = new ArrayList<>();
    if (topics.length > 1) {
      SimpleConsumer rest = simple("GALL", Map.of("FIFO", all(), "DELAY", all(), "TRANSACTION", all()));
      others.addAll(received(rest, counts.values().stream().mapToInt(Integer::intValue).sum()));
      rest.close();
    } else {
      for (Map.Entry<String, Integer> each : counts.entrySet()) {
        SimpleConsumer one = simple("G" + each.getKey(), Map.of(each.getKey(), all()));
        others.addAll(received(one, each.getValue()));
        one.close();
      }
    }
    others.stream().collect(Collectors.groupingBy(MessageView::getTopic))
        .forEach((topic, views) -> found.put(topic, texts(views)));
    long now = System.currentTimeMillis();
    producer.close();
    return object("found", found, "asked", asked, "isLate", now >= due, "isRecalled", isRecalled,
        "large", body.equals(ByteBuffer.wrap(large)),
        "details", List.of(first.getTag().orElse(""), new ArrayList<>(new TreeSet<>(first.getKeys())),
            first.getProperties().get("a"), first.getMessageId().toString().equals(receipt.getMessageId().toString()),
            first.getDeliveryAttempt()));
  }

  /* Change the invisible time of a message, and fail to process one with a push consumer. */
  static Map<String, Object> redelivery() throws Exception {
    Producer producer = producer("NORMAL", "FIFO");
    producer.send(message("NORMAL", "again").build());
    SimpleConsumer consumer = simple("Gagain", Map.of("NORMAL", all()));
    List<Object> attempts = new ArrayList<>();
    long end = System.currentTimeMillis() + LIMIT_MS;
    while (attempts.size() < 2 && System.currentTimeMillis() < end) {
      for (MessageView view : consumer.receive(1, Duration.ofSeconds(30))) {
        attempts.add(view.getDeliveryAttempt());
        if (attempts.size() == 1) {
          consumer.changeInvisibleDuration(view, Duration.ofSeconds(1));
        } else {
          consumer.ack(view);
        }
      }
    }
    consumer.close();
    List<Object> push = pushed("Gpush", "NORMAL", 2, view -> view.getDeliveryAttempt() > 1);
    for (int number = 0; number < 6; number++) {
      producer.send(message("FIFO", number % 2 + "-" + number).setMessageGroup("g" + number % 2).build());
    }
    // Two consumers share an orderly group.
    AtomicBoolean isRefused = new AtomicBoolean();
    List<Object> fifo = pushed("Gfifo", "FIFO", 7, view -> !text(view).equals("0-2") || isRefused.getAndSet(true));
    return object("simple", attempts, "push", push, "fifo", fifo);
  }

  /* Fail to process a message each time, with push consumers of both kinds; receive the dead letters. */
  static Map<String, Object> dead() throws Exception {
    Producer producer = producer("NORMAL", "FIFO");
    Map<String, Object> found = new LinkedHashMap<>();
    for (String topic : new String[] {"NORMAL", "FIFO"}) {
      String group = topic.equals("FIFO") ? "Gdeadfifo" : "Gdead";
      MessageBuilder builder = message(topic, "dead");
      producer.send((topic.equals("FIFO") ? builder.setMessageGroup("g") : builder).build());
      AtomicInteger attempts = new AtomicInteger();
      push(group, topic, view -> {
        attempts.incrementAndGet();
        return ConsumeResult.FAILURE;
      });
      found.put(topic, texts(received(letters("%DLQ%" + group), 1)));
      found.put(topic + " attempts", attempts.get());
    }
    return found;
  }

  /* Do what is refused; return the message of each error. */
  static Map<String, Object> errors() throws Exception {
    Producer producer = producer("NORMAL");
    Map<String, Object> found = new LinkedHashMap<>();
    found.put("type", failure(() -> producer.send(message("NORMAL", "x").setMessageGroup("g").build())));
    found.put("unknown", failure(() -> producer.send(message("nothere", "x").build())));
    found.put("large", failure(() -> producer.send(
        PROVIDER.newMessageBuilder().setTopic("NORMAL").setBody(new byte[LARGE + 1]).build())));
    found.put("start", failure(() -> producer("nothere")));
    SimpleConsumer consumer = simple("Gerrors", Map.of("NORMAL", new FilterExpression("a >", FilterExpressionType.SQL92)));
    found.put("filter", failure(() -> consumer.receive(1, Duration.ofSeconds(30))));
    SimpleConsumer hasty = simple("Gerrors2", Map.of("NORMAL", all()));
    found.put("invisible", failure(() -> hasty.receive(1, Duration.ofSeconds(1))));
    return found;
  }

  /* Send in four message groups until standard input ends, while push consumers get them; print `sending` first. */
  static Map<String, Object> load() throws Exception {
    AtomicBoolean isEnded = new AtomicBoolean();
    new Thread(() -> {
      try {
        while (System.in.read() >= 0) {
        }
      } catch (java.io.IOException error) {
        throw new java.io.UncheckedIOException(error);
      }
      isEnded.set(true);
    }).start();
    Map<String, List<Integer>> received = new ConcurrentHashMap<>();
    MessageListener listener = view -> {
      String[] parts = text(view).split(":");
      List<Integer> numbers = received.computeIfAbsent(parts[0], key -> new ArrayList<>());
      synchronized (numbers) {
        numbers.add(Integer.parseInt(parts[1]));
      }
      return ConsumeResult.SUCCESS;
    };
    push("Gfifo", "FIFO", listener);
    push("Gfifo", "FIFO", listener);
    AtomicInteger failed = new AtomicInteger();
    AtomicInteger sentAll = new AtomicInteger();
    AtomicLong longestMs = new AtomicLong();
    Map<String, Set<Integer>> acknowledged = new ConcurrentHashMap<>();
    Set<String> errors = ConcurrentHashMap.newKeySet();
    List<Thread> threads = new ArrayList<>();
    for (int index = 0; index < 4; index++) {
      String group = "g" + index;
      Set<Integer> mine = new TreeSet<>();
      acknowledged.put(group, mine);
      Producer producer = producer("FIFO");
      Thread thread = new Thread(() -> {
        int after = 0;
        long before = System.nanoTime();
        for (int number = 0; !isEnded.get() || after < 20; number++) {
          try {
            producer.send(message("FIFO", group + ":" + number).setMessageGroup(group).build());
          } catch (Exception error) {
            failed.incrementAndGet();
            errors.add(String.valueOf(error));
            continue;
          }
          mine.add(number);
          long now = System.nanoTime();
          long gapMs = (now - before) / 1_000_000;
          longestMs.accumulateAndGet(gapMs, Math::max);
          before = now;
          after += isEnded.get() ? 1 : 0;
          if (sentAll.incrementAndGet() == 80) {
            System.out.println("sending");
            System.out.flush();
          }
        }
      });
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    long end = System.currentTimeMillis() + 2 * LIMIT_MS;
    Map<String, Object> lost = new TreeMap<>();
    do {
      Thread.sleep(100);
      lost.clear();
      for (Map.Entry<String, Set<Integer>> sent : acknowledged.entrySet()) {
        Set<Integer> missing = new TreeSet<>(sent.getValue());
        missing.removeAll(copy(received.get(sent.getKey())));
        if (!missing.isEmpty()) {
          lost.put(sent.getKey(), missing);
        }
      }
    } while (!lost.isEmpty() && System.currentTimeMillis() < end);
    Map<String, Object> disordered = new TreeMap<>();
    int again = 0;
    for (Map.Entry<String, List<Integer>> each : received.entrySet()) {
      List<Integer> numbers = copy(each.getValue());
      List<Integer> first = numbers.stream().distinct().collect(Collectors.toList());
      again += numbers.size() - first.size();
      if (!first.equals(first.stream().sorted().collect(Collectors.toList()))) {
        disordered.put(each.getKey(), numbers);
      }
    }
    return object("sent", sentAll.get(), "failed", failed.get(), "errors", new ArrayList<>(errors), "lost", lost,
        "disordered", disordered, "again", again, "longestMs", longestMs.get());
  }

  /* Send for some seconds with 1 and 8 threads, then asynchronously, and receive all of it. */
  static Map<String, Object> speed() throws Exception {
    Producer producer = producer("NORMAL");
    Map<String, Object> found = new LinkedHashMap<>();
    byte[] body = new byte[1024];
    int total = 0;
    for (int count : new int[] {1, 1, 8, 64}) {
      AtomicInteger sent = new AtomicInteger();
      long end = System.nanoTime() + 3_000_000_000L;
      List<Thread> threads = new ArrayList<>();
      for (int index = 0; index < count; index++) {
        Thread thread = new Thread(() -> {
          try {
            while (System.nanoTime() < end) {
              producer.send(PROVIDER.newMessageBuilder().setTopic("NORMAL").setBody(body).build());
              sent.incrementAndGet();
            }
          } catch (Exception error) {
            error.printStackTrace();
          }
        });
        thread.start();
        threads.add(thread);
      }
      for (Thread thread : threads) {
        thread.join();
      }
      found.put("sends/s with " + count, sent.get() / 3);
      total += sent.get();
    }
    AtomicInteger got = new AtomicInteger();
    long begin = System.nanoTime();
    push("Gspeed", "NORMAL", view -> {
      got.incrementAndGet();
      return ConsumeResult.SUCCESS;
    });
    while (got.get() < total && System.nanoTime() - begin < 10_000_000_000L) {
      Thread.sleep(10);
    }
    found.put("pushed/s", got.get() * 1_000_000_000L / (System.nanoTime() - begin));
    return found;
  }

  // ----------------------------------------------------------------------------------------------------------- parts

  interface Judge {
    boolean isDone(MessageView view);
  }

  interface Attempt {
    Object run() throws Exception;
  }

  static MessageBuilder message(String topic, String body) {
    return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
  }

  static Producer producer(String... topics) throws Exception {
    return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topics).build();
  }

  static FilterExpression all() {
    return new FilterExpression("*");
  }

  static SimpleConsumer simple(String group, Map<String, FilterExpression> subscriptions) throws Exception {
    return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
        .setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(subscriptions).build();
  }

  static PushConsumer push(String group, String topic, MessageListener listener) throws Exception {
    return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
        .setSubscriptionExpressions(Map.of(topic, all())).setMessageListener(listener).build();
  }

  /* Consume with two push consumers until messages were given `count` times; return body and attempt of each. */
  static List<Object> pushed(String group, String topic, int count, Judge judge) throws Exception {
    List<Object> found = new ArrayList<>();
    CountDownLatch done = new CountDownLatch(count);
    MessageListener listener = view -> {
      synchronized (found) {
        found.add(List.of(text(view), view.getDeliveryAttempt()));
      }
      boolean isDone = judge.isDone(view);
      done.countDown();
      return isDone ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
    };
    // They are not closed: that waits for a receive without a message, up to 20 s.
    push(group, topic, listener);
    push(group, topic, listener);
    done.await(LIMIT_MS, TimeUnit.MILLISECONDS);
    synchronized (found) {
      return new ArrayList<>(found);
    }
  }

  /* Return a consumer of a topic that is created with its first message. */
  static SimpleConsumer letters(String topic) throws Exception {
    long end = System.currentTimeMillis() + LIMIT_MS;
    while (true) {
      try {
        return simple("Gletters", Map.of(topic, all()));
      } catch (Exception | Error error) {
        if (System.currentTimeMillis() > end) {
          throw error;
        }
        Thread.sleep(500);
      }
    }
  }

  /* Receive and acknowledge until `count` messages were received, or for some time. */
  static List<MessageView> received(SimpleConsumer consumer, int count) throws Exception {
    List<MessageView> found = new ArrayList<>();
    long end = System.currentTimeMillis() + LIMIT_MS;
    while (found.size() < count && System.currentTimeMillis() < end) {
      for (MessageView view : consumer.receive(32, Duration.ofSeconds(30))) {
        consumer.ack(view);
        found.add(view);
      }
    }
    return found;
  }

  /* Take a delayed message back; versions before 5.0.8 cannot. */
  static boolean recall(Producer producer, String topic, SendReceipt receipt) throws Exception {
    try {
      Object handle = SendReceipt.class.getMethod("getRecallHandle").invoke(receipt);
      Producer.class.getMethod("recallMessage", String.class, String.class).invoke(producer, topic, handle);
      return true;
    } catch (NoSuchMethodException error) {
      return false;
    }
  }

  static String failure(Attempt attempt) {
    try {
      attempt.run();
      return "";
    } catch (Exception error) {
      return String.valueOf(error);
    }
  }

  static String text(MessageView view) {
    return StandardCharsets.UTF_8.decode(view.getBody()).toString();
  }

  static List<String> texts(List<MessageView> views) {
    return views.stream().map(OfficialJavaClient::text).collect(Collectors.toList());
  }

  static List<Integer> copy(List<Integer> numbers) {
    if (numbers == null) {
      return List.of();
    }
    synchronized (numbers) {
      return new ArrayList<>(numbers);
    }
  }

  static Map<String, Object> object(Object... pairs) {
    Map<String, Object> found = new LinkedHashMap<>();
    for (int index = 0; index < pairs.length; index += 2) {
      found.put((String) pairs[index], pairs[index + 1]);
    }
    return found;
  }

  static String json(Object value) {
    if (value instanceof Map) {
      return ((Map<?, ?>) value).entrySet().stream()
          .map(each -> json(each.getKey()) + ":" + json(each.getValue())).collect(Collectors.joining(",", "{", "}"));
    }
    if (value instanceof Collection) {
      return ((Collection<?>) value).stream().map(OfficialJavaClient::json).collect(Collectors.joining(",", "[", "]"));
    }
    if (value instanceof Number || value instanceof Boolean) {
      return value.toString();
    }
    StringBuilder quoted = new StringBuilder("\"");
    for (char each : String.valueOf(value).toCharArray()) {
      quoted.append(each < ' ' || each == '"' || each == '\\' ? String.format("\\u%04x", (int) each) : each);
    }
    return quoted.append('"').toString();
  }
}
