package peers;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import java.util.List;

/** One node of DLedger with its defaults, but for the size of its files: {@code ID PEERS FOLDER}. */
public final class Node {
    private static final int LOG_FILE_BYTES = 256 << 20;
    private static final int INDEX_FILE_BYTES = 32 << 20;

    private Node() {}

    public static void main(String[] arguments) throws InterruptedException {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(Driver.GROUP);
        config.setSelfId(arguments[0]);
        config.setPeers(arguments[1]);
        config.setStoreBaseDir(arguments[2]);
        config.setStoreType(DLedgerConfig.FILE);
        config.setMappedFileSizeForEntryData(LOG_FILE_BYTES);
        config.setMappedFileSizeForEntryIndex(INDEX_FILE_BYTES);
        DLedgerServer server = new DLedgerServer(config);
        server.registerUserDefineProcessors(List.of(new Batches(server)));
        server.startup();
        Thread.currentThread().join();
    }
}
