package interop;

import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.Properties;

/**
 * The options of the command line.
 *
 * @param command read, write, waiting or bench
 * @param directory the store
 * @param config settings of MessageStoreConfig, by name
 * @param nodeId of DLedger; empty: a plain store
 * @param input puts to make; null without
 * @param isCopied whether read works on a copy
 * @param isHalted whether write or waiting exits like a killed process
 * @param count messages of bench
 */
record Options(String command, Path directory, Properties config, String nodeId, Path input, boolean isCopied,
               boolean isHalted, int count) {

    static Options parse(String[] arguments) {
        if (arguments.length < 2) {
            throw new IllegalArgumentException("a command and a folder are needed");
        }
        Properties config = new Properties();
        String nodeId = "";
        Path input = null;
        boolean isCopied = true;
        boolean isHalted = false;
        int count = 400_000;
        Iterator<String> rest = List.of(arguments).subList(2, arguments.length).iterator();
        while (rest.hasNext()) {
            String option = rest.next();
            switch (option) {
                case "--config" -> {
                    String[] pair = valueOf(option, rest).split("=", 2);
                    if (pair.length < 2) {
                        throw new IllegalArgumentException("--config needs NAME=VALUE");
                    }
                    config.setProperty(pair[0], pair[1]);
                }
                case "--dledger" -> nodeId = valueOf(option, rest);
                case "--input" -> input = Path.of(valueOf(option, rest));
                case "--no-copy" -> isCopied = false;
                case "--halt" -> isHalted = true;
                case "--count" -> count = Integer.parseInt(valueOf(option, rest));
                default -> throw new IllegalArgumentException("no option is called " + option);
            }
        }
        return new Options(arguments[0], Path.of(arguments[1]).toAbsolutePath(), config, nodeId, input, isCopied, isHalted,
            count);
    }

    private static String valueOf(String option, Iterator<String> rest) {
        if (!rest.hasNext()) {
            throw new IllegalArgumentException(option + " needs a value");
        }
        return rest.next();
    }
}
