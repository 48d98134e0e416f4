package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;

/**
 * Reads, writes and measures stores with Apache RocketMQ's own {@code DefaultMessageStore}, for tests/interop.
 *
 * <p>Results are JSON, one object a line, on standard output; all else goes to standard error. It ends by
 * {@code Runtime.halt}, because threads of the store would keep the process alive. Exit status: 0 done, 1 failed, 2 wrong
 * usage.
 */
public final class Main {
    private static final String USAGE = """
        usage: interop COMMAND DIR [OPTION]...
          read DIR     copy the store, open the copy, read all by log, by queue, by key; a line a message, then a summary
          write DIR    put the messages of --input (a line for each put) in place; a line a put
          waiting DIR  run a broker that leaves messages that wait, and those that waited; a line a message sent
          bench DIR    put, get and rebuild in an empty folder; one line of figures
        options:
          --config NAME=VALUE   a setting of MessageStoreConfig (waiting: of BrokerConfig, too); may be repeated
          --dledger ID          open with enableDLegerCommitLog, as this node (n0)
          --input FILE          of write
          --no-copy             read: open DIR itself; Java's shutdown may change it
          --halt                write, waiting: exit like a killed process right after the last put
          --count N             bench: messages (400000)
        """;

    private Main() {
    }

    /** Runs one command. */
    public static void main(String[] arguments) {
        PrintStream results = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        int status = 1;
        try {
            run(Options.parse(arguments), line -> results.println(JSON.toJSONString(line, JSONWriter.Feature.WriteNulls)));
            status = 0;
        } catch (IllegalArgumentException wrong) {
            System.err.println(wrong.getMessage() + "\n" + USAGE);
            status = 2;
        } catch (Exception failed) {
            failed.printStackTrace();
        }
        results.flush();
        System.err.flush();
        Runtime.getRuntime().halt(status);
    }

    private static void run(Options options, Consumer<Object> results) throws Exception {
        switch (options.command()) {
            case "read" -> StoreReader.read(options, results);
            case "write" -> StoreWriter.write(options, results);
            case "waiting" -> WaitingWriter.write(options, results);
            case "bench" -> StoreBench.measure(options, results);
            default -> throw new IllegalArgumentException("no command is called " + options.command());
        }
    }
}
