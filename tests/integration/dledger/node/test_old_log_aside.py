"""An old log that a reset set aside: shown by the status, deleted in time, and restored."""

import shutil
from dataclasses import replace
from pathlib import Path

from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.service.answers import status_response
from store.fs.linux.files import OsFiles


def reset_log(directory: Path, config, caught_up_index: int) -> None:
    sizes = EntryStoreConfig(config.mapped_file_size_for_entry_data, config.mapped_file_size_for_entry_index)
    store = EntryStore.open(OsFiles(), str(directory), sizes)
    store.reset(store.begin_index, store.begin_position, store.begin_prev_term, caught_up_index=caught_up_index)
    store.close()


def test_group_of_one_can_begin_with_a_log_that_was_set_aside(cluster, run, tmp_path):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a", b"b")
        n1 = cluster.nodes["n1"]
        # The two others are a majority: n1 may still lack what they have acknowledged.
        await cluster.eventually(lambda: cluster.bodies(n1, n1.commit_index) == [b"a", b"b"])
        await cluster.stop()
        config, directory = cluster.configs["n1"], tmp_path / "dledger-n1"
        reset_log(directory, config, 1_000)
        new = tmp_path / "new" / "dledger-n1"
        new.mkdir(parents=True)
        shutil.copytree(directory / "aside" / "data", new / "data")
        alone = tuple(peer for peer in config.peers if peer.id == "n1")
        cluster.configs = {"n1": replace(config, store_base_dir=str(tmp_path / "new"), peers=alone)}

        await cluster.start("n1", is_adopting=True)
        await cluster.append(b"c")
        leader = await cluster.leader()

        assert cluster.bodies(leader, leader.commit_index) == [b"a", b"b", b"c"]
        await cluster.stop()

    run(main())


def test_follower_shows_its_old_log_until_it_has_caught_up(cluster, run, tmp_path):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a", b"b")
        await cluster.in_contact()
        await cluster.stop("n1")
        reset_log(tmp_path / "dledger-n1", cluster.configs["n1"], 10)

        await cluster.start("n1")
        node = cluster.nodes["n1"]
        shown = status_response(node.status())
        for number in range(12):
            await cluster.append(b"%d" % number)
        await cluster.eventually(lambda: node.status().aside_files == 0)

        assert (shown.aside_files, shown.aside_caught_up_index) == (1, 10)
        assert status_response(node.status()).aside_last_index == -1
        assert not (tmp_path / "dledger-n1" / "aside").exists()
        await cluster.stop()

    run(main())
