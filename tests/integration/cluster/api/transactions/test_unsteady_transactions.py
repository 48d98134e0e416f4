"""Ends of transactions whatever becomes of the puts: refused, without an answer, stored later, stored in part."""

import asyncio
from random import Random

import pytest

from cluster.delivery import leader_task
from cluster.delivery.transactions import ends
from cluster.state.commands import SetFeatureLevel
from store.errors import Certainty
from store.model.commit_log import PutOutcome, PutStatus
from store.model.topics import OP_HALF_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.transactions.test_transactions import COMMIT, ROLLBACK, begin, changed, half, table
from tests.integration.cluster.api.waiting.test_delayed import Unsteady, answered
from tests.support.waiting import until

COUNT = 120
# Refusals after which a client repeats the request.
REPEATED = ("LEADER_PENDING_FULL", "NOT_LEADER", "ANSWER_LOST", "STORE_STOPPED", "FLUSH_DISK_TIMEOUT")


class PartlyStored(Unsteady):
    """An unknown outcome may also be that only the first messages are stored, as after a change of leader."""

    def begin_own_put(self, messages):
        if self.random.random() < 0.2:
            assert self.undecided is None, "a put was begun while the outcome of another one was unknown"
            self.counts["partly"] = self.counts.get("partly", 0) + 1
            self.undecided = messages[: self.random.randrange(len(messages))]
            return answered(PutOutcome(PutStatus.FLUSH_DISK_TIMEOUT, Certainty.UNKNOWN, (), "too late"))
        return super().begin_own_put(messages)


@pytest.mark.parametrize("seed", range(3))
def test_each_transaction_ends_once_and_as_answered_whatever_becomes_of_the_puts(shop, monkeypatch, seed):
    monkeypatch.setattr(leader_task, "_PAUSE_S", 0.001)
    monkeypatch.setattr(ends, "ENDS_MAX", 7)
    shop.replica_kind = PartlyStored

    async def scenario():
        random = Unsteady.random = Random(seed)
        Unsteady.counts = {}
        async with shop.open() as stub:
            requests = [await begin(shop, f"k{number}") for number in range(COUNT)]
            answers, space = {}, asyncio.Semaphore(50)

            async def decide(number, end):
                while True:
                    async with space:
                        response = await stub.EndTransaction(changed(requests[number], end=end))
                    if response.answer.reason not in REPEATED:
                        answers.setdefault(number, []).append((end, response.answer.reason))
                        return
                    await asyncio.sleep(0.001)

            # Some are decided twice at once, alike or differently.
            calls = [(number, random.choice([COMMIT, ROLLBACK])) for number in [*range(COUNT), *range(0, COUNT, 3)]]
            random.shuffle(calls)
            await asyncio.gather(*(decide(*each) for each in calls))

            await until(lambda: not table(shop).without_op)
            get = shop.replica.store.get
            bodies = [each.body.decode() for each in get(TOPIC, 0, 0, 1_000).messages]
            ended = {number: table(shop).ended(number).ending.value for number in range(COUNT)}
            for number, found in answers.items():
                done = {end for end, reason in found if not reason}
                refused = {end for end, reason in found if reason == "TRANSACTION_ENDED"}
                assert len(done) == 1
                assert len(found) == len([1 for end, _ in found if end in done or end in refused])
                assert not done & refused
                assert ended[number] == ("c" if done == {COMMIT} else "r")
            committed = [f"body of k{number}" for number in range(COUNT) if ended[number] == "c"]
            assert sorted(bodies) == sorted(committed)
            ops = [int(each) for op in get(OP_HALF_TOPIC, 0, 0, 1_000).messages for each in op.body.split(b",")[:-1]]
            assert sorted(set(ops)) == list(range(COUNT))
            assert table(shop).open_count == 0
            assert shop.replica.state.unfit_effects_count == 0
            assert len(Unsteady.counts) == 7, Unsteady.counts

    run(scenario)


def test_below_the_feature_level_transactions_are_refused(shop, monkeypatch):
    """As in a group of which a member runs an older program."""

    async def scenario():
        async with shop.open() as stub:
            request = await begin(shop)
            shop.replica.state._content.feature_level = 1
            put = await shop.put(b"a", b"b", properties=[b"", half("k1")])
            assert put.answer.reason == "UNSUPPORTED"
            assert (await stub.EndTransaction(request)).answer.reason == "UNSUPPORTED"
            assert (await shop.put(b"a", properties=[b"DELAY\x011\x02"])).answer.code == 0
            await shop.replica.change(SetFeatureLevel(2))
            assert (await stub.EndTransaction(request)).answer.code == 0

    run(scenario)
