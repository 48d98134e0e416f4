package peers;

import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.protocol.BatchAppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineProcessor;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineRequest;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineResponse;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** A request that appends a batch. DLedger's own client appends one body; only programs inside the node append more. */
final class Batches extends UserDefineProcessor<Batches.Request, Batches.Response> {
    private static final int CODE = 1;

    Batches(DLedgerServer server) {
        super(server);
    }

    /** Bodies to append. DLedger encodes its fields as JSON, so they have accessors. */
    public static final class Request extends UserDefineRequest {
        private List<byte[]> bodies;

        @Override
        public int getRequestTypeCode() {
            return CODE;
        }

        public List<byte[]> getBodies() {
            return bodies;
        }

        public void setBodies(List<byte[]> bodies) {
            this.bodies = bodies;
        }
    }

    /** The outcome of the batch, as a code of DLedger. */
    public static final class Response extends UserDefineResponse {}

    @Override
    public CompletableFuture<Response> handleRequest(Request request) {
        BatchAppendEntryRequest append = new BatchAppendEntryRequest();
        append.setGroup(request.getGroup());
        append.setRemoteId(request.getRemoteId());
        append.setBatchMsgs(request.getBodies());
        try {
            return dLedgerServer.handleAppend(append).thenApply(answer -> response(answer.getCode()));
        } catch (IOException error) {
            return CompletableFuture.completedFuture(response(DLedgerResponseCode.INTERNAL_ERROR.getCode()));
        }
    }

    private static Response response(int code) {
        Response response = new Response();
        response.setCode(code);
        return response;
    }

    @Override
    public Integer getRequestTypeCode() {
        return CODE;
    }
}
