package interop;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** One DefaultMessageStore, loaded and running; its close() is the clean shutdown of a broker. */
final class OpenStore implements AutoCloseable {
    private static final long READY_WITHIN_MS = 60_000;
    private static final long POLL_MS = 1;

    final DefaultMessageStore store;
    /** How long load() took: recovery, with what it dispatches. */
    final long loadNanos;

    private OpenStore(DefaultMessageStore store, long loadNanos) {
        this.store = store;
        this.loadNanos = loadNanos;
    }

    /**
     * Opens a store and waits until all of its log is dispatched.
     *
     * @param nodeId of DLedger; empty for a plain store
     * @throws IllegalStateException when the store does not load, or is not ready in time
     */
    static OpenStore open(Path directory, Properties settings, String nodeId) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory.toString());
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setHaListenPort(0);
        config.setEnableCompaction(false);
        config.setTimerWheelEnable(false);
        // Nothing is deleted unless a test asks for it.
        config.setFileReservedTime(24 * 365 * 50);
        config.setCleanFileForciblyEnable(false);
        config.setDiskMaxUsedSpaceRatio(95);
        // Queries by key return all messages.
        config.setMaxMsgsNumBatch(1 << 20);
        if (!nodeId.isEmpty()) {
            config.setEnableDLegerCommitLog(true);
            config.setdLegerGroup("interop");
            config.setdLegerSelfId(nodeId);
            config.setdLegerPeers(nodeId + "-127.0.0.1:" + freePort());
        }
        MixAll.properties2Object(settings, config);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queueId, logicOffset, tagsCode, storeTimestamp, bitMap, properties) -> { }, new BrokerConfig(),
            new ConcurrentHashMap<>());
        long began = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException(directory + ": the store does not load");
        }
        long loadNanos = System.nanoTime() - began;
        store.start();
        OpenStore open = new OpenStore(store, loadNanos);
        open.awaitReady();
        return open;
    }

    /** Waits until everything that may be read is dispatched; with DLedger also until the log is committed. */
    void awaitReady() throws InterruptedException {
        long giveUpAt = System.nanoTime() + READY_WITHIN_MS * 1_000_000;
        while (!isCommitted() || store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > giveUpAt) {
                throw new IllegalStateException("not ready: " + store.dispatchBehindBytes() + " bytes are not dispatched");
            }
            Thread.sleep(POLL_MS);
        }
    }

    private boolean isCommitted() {
        if (!(store.getCommitLog() instanceof DLedgerCommitLog log)) {
            return true;
        }
        var state = log.getdLedgerServer().getMemberState();
        return state.isLeader() && (state.getLedgerEndIndex() < 0
            || log.getdLedgerServer().getDLedgerStore().getCommittedIndex() == state.getLedgerEndIndex());
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    @Override
    public void close() {
        store.shutdown();
    }
}
