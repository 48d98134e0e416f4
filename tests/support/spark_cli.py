"""`dledger spark`, run in the process of a test."""

from typer.testing import CliRunner

from cluster.cli.app import app


def run(*words):
    """Run a command of `dledger spark`; return what it printed and its exit code."""
    return CliRunner().invoke(app, ["spark", *map(str, words)], catch_exceptions=False)
