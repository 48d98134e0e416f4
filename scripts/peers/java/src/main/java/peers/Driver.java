package peers;

import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.client.DLedgerClientRpcNettyService;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.protocol.MetadataRequest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Drives DLedger by closed loops of threads that share one client, and measures them. Options and output are those of
 * the Go drivers: the lines "begin" and "end" around the measured time, then "result" with the figures in JSON; or
 * "ready" with the position of the leader, and "appended" after the next append that succeeds.
 */
public final class Driver {
    static final String GROUP = "bench";
    private static final long START_LIMIT_NS = TimeUnit.SECONDS.toNanos(60);
    private static final int BEFORE_KILL = 50;
    private static final long RETRY_PAUSE_MS = 5;
    private static final long NS_PER_S = 1_000_000_000L;

    private final Map<String, String> options = new HashMap<>();
    private final List<byte[]> bodies = new ArrayList<>();
    private final DLedgerClient client;

    private Driver(String[] arguments) {
        options.put("batch", "1");
        for (String argument : arguments) {
            String[] words = argument.substring(1).split("=", 2);
            options.put(words[0], words.length > 1 ? words[1] : "");
        }
        for (int number = 0; number < number("batch"); number++) {
            // Incompressible, so that no layer saves bytes by compression.
            byte[] body = new byte[(int) number("body")];
            ThreadLocalRandom.current().nextBytes(body);
            bodies.add(body);
        }
        client = new DLedgerClient(GROUP, peers());
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(arguments);
        driver.client.startup();
        driver.waitForLeader();
        if (driver.options.containsKey("failover")) {
            driver.failover();
        } else {
            driver.measure();
        }
        // The threads of the client are no daemons.
        System.exit(0);
    }

    private double number(String option) {
        return Double.parseDouble(options.get(option));
    }

    private String peers() {
        String[] endpoints = options.get("endpoints").split(",");
        List<String> peers = new ArrayList<>();
        for (int number = 0; number < endpoints.length; number++) {
            peers.add("n" + number + "-" + endpoints[number]);
        }
        return String.join(";", peers);
    }

    private int append() {
        if (bodies.size() == 1) {
            return client.append(bodies.get(0)).getCode();
        }
        Batches.Request request = new Batches.Request();
        request.setBodies(bodies);
        return client.invokeUserDefineRequest(request, Batches.Response.class, true).getCode();
    }

    private boolean isAppended() {
        return append() == DLedgerResponseCode.SUCCESS.getCode();
    }

    private void waitForLeader() throws InterruptedException {
        long deadline = System.nanoTime() + START_LIMIT_NS;
        while (!isAppended()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("no append was acknowledged within 60 s of the start");
            }
            Thread.sleep(RETRY_PAUSE_MS);
        }
    }

    // ------------------------------------------------------------------------------------------------- throughput

    private void measure() throws Exception {
        long begin = System.nanoTime() + (long) (number("warm-up") * NS_PER_S);
        long end = begin + (long) (number("seconds") * NS_PER_S);
        int callers = (int) number("callers");
        ExecutorService threads = Executors.newFixedThreadPool(callers);
        List<Future<List<Long>>> calls = new ArrayList<>();
        for (int caller = 0; caller < callers; caller++) {
            calls.add(threads.submit(() -> call(begin, end)));
        }
        sleepUntil(begin);
        System.out.println("begin");
        sleepUntil(end);
        System.out.println("end");
        List<Long> latencies = new ArrayList<>();
        for (Future<List<Long>> each : calls) {
            latencies.addAll(each.get());
        }
        latencies.sort(null);
        System.out.printf(
                "result {\"entries\": %d, \"p50_ms\": %s, \"p99_ms\": %s}%n",
                (long) latencies.size() * bodies.size(), share(latencies, 0.5), share(latencies, 0.99));
    }

    /** Appends until the end; returns the latencies of the appends that ended in the measured time. */
    private List<Long> call(long begin, long end) {
        List<Long> latencies = new ArrayList<>();
        for (long began = System.nanoTime(); began < end; began = System.nanoTime()) {
            int code = append();
            if (code != DLedgerResponseCode.SUCCESS.getCode()) {
                throw new IllegalStateException("append failed: " + DLedgerResponseCode.valueOf(code));
            }
            long ended = System.nanoTime();
            if (ended >= begin && ended <= end) {
                latencies.add(ended - began);
            }
        }
        return latencies;
    }

    private static void sleepUntil(long time) throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep(time - System.nanoTime());
    }

    private static double share(List<Long> ordered, double part) {
        if (ordered.isEmpty()) {
            return 0;
        }
        return ordered.get(Math.min((int) (ordered.size() * part), ordered.size() - 1)) / 1e6;
    }

    // --------------------------------------------------------------------------------------------------- failover

    private void failover() throws Exception {
        for (int number = 0; number < BEFORE_KILL; number++) {
            if (!isAppended()) {
                throw new IllegalStateException("an append before the kill failed");
            }
        }
        System.out.println("ready " + leader());
        if (System.in.read() < 0) {
            return;
        }
        while (!isAppended()) {
            Thread.sleep(RETRY_PAUSE_MS);
        }
        System.out.println("appended");
    }

    /** Returns the position of the leader in the endpoints; the nodes are n0, n1 and n2. */
    private int leader() throws Exception {
        DLedgerClientRpcNettyService service = new DLedgerClientRpcNettyService();
        service.updatePeers(peers());
        service.startup();
        MetadataRequest request = new MetadataRequest();
        request.setGroup(GROUP);
        request.setRemoteId("n0");
        String leader = service.metadata(request).get().getLeaderId();
        service.shutdown();
        return Integer.parseInt(leader.substring(1));
    }
}
