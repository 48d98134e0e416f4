"""The command line `dledger`.

`app` is the program, `loading` knows in which module each command is, and imports it when it is called. What several
commands share is here, the commands are in `nodes`, `messages`, `store` and `bench`. Nothing but the console script and
the commands of `pipeline.cli` imports this package.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from cluster.cli.app import main as run

    run()
