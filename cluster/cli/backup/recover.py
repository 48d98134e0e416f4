"""`dledger recover`: make a group of one survivor after the loss of the majority."""

from __future__ import annotations

import time
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.backup.backups import reported_backup_errors, time_text
from cluster.cli.backup.restore import NodeConfigFile, codec_of, load_server
from cluster.cli.common import EXIT_USAGE, fail, print_note

if TYPE_CHECKING:
    from cluster.backup.recovery import RecoveryPlan, SurvivingNode
    from cluster.config.load import ServerConfig


def recover(
    config: NodeConfigFile,
    group_id: Annotated[
        str, typer.Option("--group-id", metavar="HEX", help="Id of the group that is given up, typed from the plan.")
    ] = "",
    *,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Do it: acknowledged entries that only the lost nodes had are lost.")
    ] = False,
) -> None:
    """Make one stopped node a group of its own.

    It is the only member of the new group. This is for the loss of a majority that cannot be restored: while a majority
    of the nodes, or of their disks, can be had, start them instead.

    Without --unsafe it prints a plan: what is kept, and what may be lost. Run it on each node that is left, and recover
    the one with the highest last term, and among those the highest last index. The other nodes of the old group are
    refused afterwards; add new ones with `dledger members add`.

    Examples:
        dledger recover --config n0.toml
        dledger recover --config n0.toml --unsafe --group-id 5c1f3a0be2d94f17
    """
    from cluster.backup.recovery import Recovery, finish_begun, kept_path
    from store.fs.linux.files import OsFiles

    if unsafe != bool(group_id):
        fail("--unsafe and --group-id: expected both, or neither for the plan", EXIT_USAGE)
    loaded = load_server(config)
    now_ms = time.time_ns() // 1_000_000
    files, survivor = OsFiles(), _survivor_of(loaded)
    with reported_backup_errors():
        if finish_begun(files, survivor.directory):
            typer.echo(f"finished the interrupted recovery of {survivor.directory}")
            return
    with reported_backup_errors(), Recovery(files, survivor) as recovery:
        plan = recovery.plan
        for line in _lines_of(plan, loaded.node.self_id):
            typer.echo(line)
        if not unsafe:
            print_note(
                f"nothing was changed. To lose what only the other nodes have: dledger recover --config {config} "
                f"--unsafe --group-id {plan.group_id:016x}"
            )
            return
        codec = codec_of(loaded, max(now_ms, plan.last_time_ms))
        new_id = recovery.apply(group_id, draw=SystemRandom().randrange, codec=codec, now_ms=now_ms)
    typer.echo(
        f"recovered: {loaded.node.self_id} is the only member of group {loaded.node.group}, new id {new_id:016x}. "
        f"Its old directory is {kept_path(survivor.directory, plan.group_id)}. Start the node, add members with "
        "`dledger members add`, and never start the other nodes on their old files"
    )


def _survivor_of(loaded: ServerConfig) -> SurvivingNode:
    from cluster.backup.recovery import SurvivingNode
    from dledger.entries.store import EntryStoreConfig

    node = loaded.node
    return SurvivingNode(
        f"{Path(node.store_base_dir).absolute()}/dledger-{node.self_id}",
        node.self_id,
        node.group,
        str(node.self_address),
        EntryStoreConfig(
            node.mapped_file_size_for_entry_data, node.mapped_file_size_for_entry_index, node.is_flush_sync
        ),
        codec_of(loaded, 0),
    )


def _lines_of(plan: RecoveryPlan, self_id: str) -> list[str]:
    others = [each for each in plan.membership.voters if each != self_id]
    last_message = time_text(plan.last_time_ms)
    is_known = plan.committed_index >= plan.begin_index
    committed = f"entries up to {plan.committed_index}" if is_known else "none"
    vote = "" if plan.is_voter else ", without a vote: it may lack entries that the voters have"
    return [
        f"group id            {plan.group_id:016x}",
        f"this node           {self_id}{vote}",
        f"voters given up     {', '.join(others)}",
        f"log                 entries {plan.begin_index} to {plan.last_index}, last term {plan.last_term}",
        f"last message        {'not known' if last_message is None else f'stored at {last_message} UTC'}",
        f"kept, committed     {committed}, according to the last checkpoint of this node",
        f"kept, not certain   {plan.uncertain} entries after them: some may never have been acknowledged",
        f"may be lost         entries after {plan.last_index} that the others committed; this node cannot count them",
    ]
