"""Runs `dledger spark` in the process of a test."""

from typer.testing import CliRunner

from cluster.cli.app import app


def run(*words):
    """Run a command of `dledger spark`; return its output and exit code."""
    return CliRunner().invoke(app, ["spark", *map(str, words)], catch_exceptions=False)
