"""The modules of the `dledger` commands, imported lazily, because importing all takes a second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from cluster.cli.client_target import add_context_option
from cluster.cli.common import help_of
from cluster.cli.json_option import add_json_option

# In the order of the help page.
_PLACES: Final = {
    "server": "cluster.cli.nodes.server:server",
    "broker": "cluster.cli.nodes.broker:broker",
    "produce": "cluster.cli.messages.produce:produce",
    "consume": "cluster.cli.messages.consume:consume",
    "offsets": "cluster.cli.messages.topic_views:offsets",
    "nameserver": "cluster.cli.nodes.nameserver:nameserver",
    "append": "cluster.cli.nodes.log:append",
    "get": "cluster.cli.nodes.log:get",
    "tail": "cluster.cli.nodes.log:tail",
    "status": "cluster.cli.nodes.status:status",
    "top": "cluster.cli.nodes.top:top",
    "watch": "cluster.cli.nodes.watch:watch",
    "console": "cluster.cli.nodes.console:console",
    "context": "cluster.cli.nodes.context:context_app",
    "certs": "cluster.cli.nodes.certs:certs_app",
    "audit": "cluster.cli.nodes.audit:audit_app",
    "user": "cluster.cli.access.users:user_app",
    "acl": "cluster.cli.access.acl:acl_app",
    "transfer": "cluster.cli.nodes.members:transfer",
    "bench": "cluster.cli.bench.cluster:bench",
    "bench-store": "cluster.cli.bench.store:bench_store",
    "bench-broker": "cluster.cli.bench.broker:bench_broker",
    "verify": "cluster.cli.store.verify:verify",
    "rebuild": "cluster.cli.store.rebuild:rebuild",
    "export": "cluster.cli.store.messages:export",
    "topic": "cluster.cli.messages.topics:topic_app",
    "group": "cluster.cli.messages.groups:group_app",
    "delay": "cluster.cli.waiting.delays:delay_app",
    "dlq": "cluster.cli.waiting.dead_letters:dead_letters_app",
    "recall": "cluster.cli.waiting.recall:recall",
    "transaction": "cluster.cli.waiting.transactions:transaction_app",
    "export-config": "cluster.cli.messages.export_config:export_config",
    "query": "cluster.cli.messages.query:query_app",
    "members": "cluster.cli.nodes.members:members_app",
    "brokers": "cluster.cli.messages.brokers:brokers_app",
    "inspect": "cluster.cli.store.inspect:inspect_app",
    "backup": "cluster.cli.backup.backups:backup_app",
    "restore": "cluster.cli.backup.restore:restore",
    "recover": "cluster.cli.backup.recover:recover",
}


class Commands(Mapping[str, Any]):
    """The commands by name, created by typer from their modules."""

    def __getitem__(self, name: str) -> Any:
        found = resolve_name(_PLACES.get(name) or self._places_above[name])
        holder = typer.Typer(add_completion=False, rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=name)
        else:
            holder.command(name, help=help_of(found))(found)
        return add_json_option(add_context_option(get_group(holder).commands[name]))

    def __iter__(self) -> Iterator[str]:
        yield from _PLACES
        yield from self._places_above

    def __len__(self) -> int:
        return len(_PLACES) + len(self._places_above)

    @cached_property
    def _places_above(self) -> dict[str, str]:
        """Return command groups of packages above this one, which are found by entry points."""
        return {entry.name: entry.value for entry in entry_points(group="dledger.commands")}


class LoadingGroup(TyperGroup):
    """The group of all commands; typer's own group would import every command for its help text."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()  # type: ignore[assignment]  # read-only

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(self.commands)
