"""The command line `dledger`.

`app` is the program; `loading` imports the module of a command when the command is called. This package has the code
that commands share; the commands are in `nodes`, `messages`, `store` and `bench`. Only the console script and the
commands of `pipeline.cli` import it.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from cluster.cli.app import main as run

    run()
