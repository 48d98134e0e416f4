"""Every command of RocketMQ's mqadmin 5.3.3, and texts that it prints for a broker of this project.

`{b}` is the broker's address, `{C}` its cluster, `{d}` a folder; a producer "P" and a consumer "G" are connected, and
have sent and consumed two messages: `{unique}` and `{place}` are ids of the first one, `{q}` its queue, `{client}` the
consumer. `{traced}` is the id of a message that `sendMessage -m true` has sent. A text that begins with `!` must not be
printed. What real brokers print was recorded with RocketMQ 5.3.3; the page docs/how-to/mqadmin.md has the differences.
"""

from typing import Final, NamedTuple

REFUSED: Final = "CODE: 1  DESC: "
_UNKNOWN: Final = "CODE: 17  DESC: No topic route info in name server for the topic: "
_NO_MESSAGE: Final = "CODE: 208"
_FAILED: Final = "!Exception"


class Command(NamedTuple):
    """A command, and texts of its output; after `limit_s` it is interrupted."""

    line: str
    expected: tuple[str, ...]
    limit_s: float = 60.0

    @property
    def name(self) -> str:
        """The command without its options."""
        return self.line.split()[0]


def _command(line: str, *expected: str, limit_s: float = 60.0) -> Command:
    return Command(line, expected, limit_s)


TOPICS: Final = (
    _command(
        "updateTopic -b {b} -t Made -r 3 -w 3 -a +message.type=FIFO", "create topic to", "message.type=FIFO", _FAILED
    ),
    _command("updateTopic -c {C} -t Ordered -r 3 -w 3 -o true", "orderConf=[b:3]", "order=true", _FAILED),
    _command("updateTopicList -c {C} -f {d}/topics.json", "submit batch of topic config", _FAILED),
    _command("updateTopicPerm -t Made -p 4 -c {C}", "from 6 to 4", _FAILED),
    _command("topicList", "Made\n", "L1\n", "%RETRY%G\n", _FAILED),
    _command("topicList -c", "orders", "G", _FAILED),
    _command("topicRoute -t Made", '"readQueueNums":3', '"perm":4', _FAILED),
    _command("topicRoute -t orders -l", "DefaultCluster", "Total:", _FAILED),
    _command("topicRoute -t none", _UNKNOWN + "none; `mqadmin updateTopic`"),
    _command("topicStatus -t orders", "#Max Offset", "Topic Put TPS", _FAILED),
    _command("topicClusterList -t orders", "DefaultCluster", _FAILED),
    _command("allocateMQ -t orders -i 10.0.0.1,10.0.0.2", '"10.0.0.1":[', _FAILED),
    _command("updateOrderConf -t Ordered -m get", "orderConf=[b:3]", _FAILED),
    _command("updateOrderConf -t Ordered -v b:3 -m put", "update orderConf success", _FAILED),
    _command("updateOrderConf -t orders -v b:2 -m put", "CODE: 604", "is not ordered"),
    _command("updateOrderConf -t Ordered -m delete", "CODE: 604", "updateTopic -o false"),
    _command("updateKvConfig -s NS -k a -v b", "CODE: 604", "ORDER_TOPIC_CONFIG"),
    _command("deleteKvConfig -s NS -k a", "CODE: 604", "ORDER_TOPIC_CONFIG"),
)
GROUPS: Final = (
    _command("updateSubGroup -c {C} -g G2 -r 5", "create subscription group to", "retryMaxTimes=5", _FAILED),
    _command("updateSubGroupList -b {b} -f {d}/groups.json", "submit batch of group config", _FAILED),
    _command("getConsumerConfig -g G2", "retryMaxTimes", "5", "attributes", _FAILED),
    # To pop: by gRPC, or what the port answers to 401.
    _command("setConsumeMode -b {b} -t orders -g G2 -m PULL"),
    _command("consumerProgress", "#Diff Total", "G2", "V5_3_3", "CLUSTERING", _FAILED),
    _command("consumerProgress -g G -s true", "#Client IP", "orders", "Consume Diff Total: 0", _FAILED),
    _command("consumerProgress -g none", _UNKNOWN + "%RETRY%none; its group does not exist"),
    _command("consumerStatus -g G", "#ConsumerRunningInfoFile", "Rebalance OK", _FAILED),
    _command("consumerStatus -g G -i {client} -s", "#Consumer Properties#", "#Consumer MQ Detail#", "!CODE: "),
    _command("consumerConnection -g G", "JAVA", "V5_3_3", "orders", "MessageModel: CLUSTERING", _FAILED),
    _command("consumerConnection -g G2", "CODE: 206", "is connected to this node"),
    _command("producerConnection -g P -t orders", "0001", "JAVA", "V5_3_3", _FAILED),
    _command("producer -b {b}", "producer group (P)", "language=JAVA", _FAILED),
    _command("cloneGroupOffset -s G -d G2 -t orders", "clone group offset success", _FAILED),
    _command("cloneGroupOffset -s G -d none -t orders", "CODE: 26", "group 'none' does not exist"),
    _command("resetOffsetByTime -g G2 -t orders -s 0", "#offset", _FAILED),
    _command("resetOffsetByTime -g none -t orders -s now", "CODE: 26"),
    _command("resetOffsetByTime -g G2 -t orders -b {b} -q {q} -s now -o 0", "reset consumer offset to 0", _FAILED),
    _command("skipAccumulatedMessage -g G2 -t orders", "#queueId", _FAILED),
    _command("brokerConsumeStats -b {b}", "orders", "G2", "Diff Total: 0", _FAILED),
    _command("brokerConsumeStats -b {b} -o true", "Diff Total: 0", "!orders", _FAILED),
    _command("startMonitoring", _FAILED),
)
MESSAGES: Final = (
    _command("sendMessage -t orders -p hello -k kk -c TagZ -m true", "SEND_OK", _FAILED),
    _command("sendMessage -t none -p hello", "No route info of this topic"),
    _command("sendMsgStatus -b b -s 10 -c 2", "SEND_OK", _FAILED),
    _command("checkMsgSendRT -t orders -a 3 -s 10", "Avg RT", "true", "!false", _FAILED),
    _command("clusterRT -a 2 -s 10 -i 1", "#successCount", "2                 0", limit_s=4.0),
    _command("queryMsgById -i {place} -t orders", "OffsetID", "trackType=CONSUMED"),
    _command("queryMsgById -i {place} -t orders -g G -d {client}", "consumeResult=CR_SUCCESS", _FAILED),
    _command("queryMsgById -i {place} -t orders -s true", "SEND_OK", _FAILED),
    _command("queryMsgByKey -t orders -k k1", "{unique}", _FAILED),
    _command("queryMsgByKey -t orders -k none", _NO_MESSAGE),
    _command("queryMsgByUniqueKey -t orders -i {unique}", "Keys:                [k1]", "trackType=CONSUMED"),
    _command("queryMsgByUniqueKey -t orders -i {unique} -g G -d {client}", "CR_SUCCESS", _FAILED),
    _command("queryMsgByUniqueKey -t orders -i 7F000001000000000000000000000000", _NO_MESSAGE),
    _command("queryMsgByOffset -t orders -b b -i {q} -o 0", "{unique}", "[k1]"),
    _command("queryMsgTraceById -i {traced}", "Pub", "success", _FAILED),
    _command("printMsg -t orders -d true", "{unique}", "hello", _FAILED),
    _command("printMsgByQueue -t orders -a b -i {q} -f true -p true", "Tag: TagA", _FAILED),
    _command("consumeMessage -t orders -b b -i {q} -o 0 -c 1", "Consume ok", "{unique}", _FAILED),
    _command("queryCq -t orders -q {q} -i 0 -c 2", "physicOffset=", "!Filter data", _FAILED),
    _command("queryCq -t orders -q {q} -i 0 -c 2 -b {b} -g G", '"subString":"*"', "Filter data", _FAILED),
)
BROKERS: Final = (
    _command("clusterList", "#Timer(Progress)", "V5_3_3", "{b}", _FAILED),
    _command("clusterList -m", "#InTotalToday", _FAILED),
    _command("statsAll -t orders", "#Accumulation", "orders", "G2", _FAILED),
    _command("brokerStatus -b {b}", "commitLogMaxOffset", "msgPutTotalTodayNow", "putLatency999", _FAILED),
    _command("haStatus -b {b}", "#MasterCommitLogMaxOffset", "#SlaveNum\t0", _FAILED),
    _command("getBrokerConfig -c {C}", "brokerName", "autoCreateTopicEnable", _FAILED),
    _command("updateBrokerConfig -b {b} -k a -v b", "CODE: 16", "in its file"),
    _command("cleanExpiredCQ -b {b}", "success", _FAILED),
    _command("deleteExpiredCommitLog -b {b}", "success", _FAILED),
    _command("cleanUnusedTopic -b {b}", "success", _FAILED),
    _command("wipeWritePerm -b b", "CODE: 604", "change the topic's permission"),
    _command("addWritePerm -b b", "CODE: 604", "change the topic's permission"),
    _command("getNamesrvConfig", "orderMessageEnable", _FAILED),
    _command("updateNamesrvConfig -k a -v b", "CODE: 604"),
    _command("exportMetadata -c {C} -f {d}", "export {d}", _FAILED),
    _command("exportConfigs -c {C} -f {d}", "export {d}/configs.json success", _FAILED),
    _command("exportMetrics -c {C} -f {d}", "export {d}/metrics.json success", _FAILED),
    _command("getColdDataFlowCtrInfo -b {b}", '"globalColdReadThreshold":0', _FAILED),
)
REFUSALS: Final = (
    _command("createUser -b {b} -u u1 -p secret12345 -t Normal", REFUSED, "dledger user"),
    _command("updateUser -b {b} -u u1 -p secret123456", REFUSED, "dledger user"),
    _command("getUser -b {b} -u u1", REFUSED, "dledger user"),
    _command("listUser -b {b}", REFUSED, "dledger user"),
    _command("copyUser -f {b} -t {b}", REFUSED, "dledger user"),
    _command("deleteUser -b {b} -u u1", REFUSED, "dledger user"),
    _command("createAcl -b {b} -s User:u1 -r Topic:orders -a Pub -d Allow", REFUSED, "dledger acl"),
    _command("updateAcl -b {b} -s User:u1 -r Topic:orders -a Sub -d Allow", REFUSED, "dledger acl"),
    _command("getAcl -b {b} -s User:u1", REFUSED, "dledger acl"),
    _command("listAcl -b {b}", REFUSED, "dledger acl"),
    _command("copyAcl -f {b} -t {b}", REFUSED, "dledger acl"),
    _command("deleteAcl -b {b} -s User:u1", REFUSED, "dledger acl"),
    _command("setCommitLogReadAheadMode -b {b} -m 1", REFUSED, "read-ahead"),
    _command("updateColdDataFlowCtrGroupConfig -b {b} -g G -v 100", REFUSED, "cold data"),
    _command("removeColdDataFlowCtrGroupConfig -b {b} -g G", REFUSED, "cold data"),
    _command("resetMasterFlushOffset -b {b} -o 0", REFUSED, "Raft group"),
    _command("getBrokerEpoch -c {C}", REFUSED, "terms instead of epochs"),
    _command("getSyncStateSet -a {b} -c {C} -b b", REFUSED, "no controller"),
    _command("getControllerMetaData -a {b}", REFUSED, "no controller"),
    _command("getControllerConfig -a {b}", REFUSED, "no controller"),
    _command("updateControllerConfig -a {b} -k a -v b", REFUSED, "no controller"),
    _command("electMaster -a {b} -b 1 -bn b -c {C}", REFUSED, "no controller"),
    _command("cleanBrokerMetadata -a {b} -bn b -c {C}", REFUSED, "no controller"),
    _command("addBroker -c {b} -b {d}/groups.json", REFUSED, "no container"),
    _command("removeBroker -c {b} -b {C}:b:1", REFUSED, "no container"),
    _command("updateStaticTopic -t stat -qn 4 -c {C}", REFUSED, "no static topics"),
    _command("remappingStaticTopic -t stat -c {C}", "No topic route to do the remapping"),
    _command("checkRocksdbCqWriteProgress -c {C} -t orders", REFUSED, "no RocksDB"),
    _command("rocksDBConfigToJson -c {C} -t topics", REFUSED, "no RocksDB"),
    _command("exportPopRecord -c {C}", REFUSED, "records of pop"),
)
# They read files of the machine on which they run, and ask no broker.
LOCAL: Final = (
    _command("exportMetadataInRocksDB -p {d}/none -t topics", "RocksDB path is invalid"),
    _command("dumpCompactionLog -f {d}/none", "not exist"),
)
DELETIONS: Final = (
    _command("deleteSubGroup -c {C} -g G2 -r true", "delete subscription group [G2]", _FAILED),
    _command("deleteTopic -c {C} -t Made", "success", _FAILED),
)
COMMANDS: Final = (*TOPICS, *GROUPS, *MESSAGES, *BROKERS, *REFUSALS, *LOCAL, *DELETIONS)
