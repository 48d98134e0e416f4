"""The unit for systemd, compared with the program: commands, paths, exit codes, and what it protects."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from typer.main import get_command

from cluster.cli.app import app
from cluster.config.load import load_config
from cluster.process.serving import EXIT_FAILED, EXIT_REFUSED, GRACE_S

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy/systemd/dledger.service"
PAGE = (ROOT / "docs/how-to/systemd.md").read_text(encoding="utf-8")
PROGRAM = "/opt/dledger/bin/dledger"
# What a service that is exposed to a network should have; `systemd-analyze security` weighs them most.
PROTECTIONS = {
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "SystemCallArchitectures": "native",
    "LimitCORE": "0",
}


def settings() -> dict[str, list[str]]:
    """Return the values of each key, in order; a key may come several times."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def commands() -> list[str]:
    return [*settings()["ExecStart"], *re.findall(r"^ExecStart=(.+)$", PAGE, re.MULTILINE)]


@pytest.mark.parametrize("command", commands())
def test_commands_are_those_of_the_program(command: str) -> None:
    """Parsed as the program does, without running it: unknown commands, options and missing arguments fail."""
    program, name, *arguments = shlex.split(command)
    found = get_command(app).commands[name]  # type: ignore[attr-defined]

    assert program == PROGRAM
    found.make_context(name, list(arguments))


def test_the_service_is_an_unprivileged_user_that_the_page_makes() -> None:
    (user,), (group,) = settings()["User"], settings()["Group"]

    assert user == group != "root"
    assert re.search(rf"useradd --system .*\b{user}$", PAGE, re.MULTILINE)
    assert f"--group {group} " in PAGE


def test_paths_of_unit_page_and_settings_agree() -> None:
    unit = settings()
    state, configuration = f"/var/lib/{unit['StateDirectory'][0]}", f"/etc/{unit['ConfigurationDirectory'][0]}"
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    options = {name: str(value) for name, value in tomllib.loads(example).items()}
    node = load_config(None, {}, options).node

    assert unit["WorkingDirectory"] == [state] == [node.store_base_dir]
    assert f"--config {configuration}/node.toml" in unit["ExecStart"][0]
    assert f"# {configuration}/node.toml" in example
    assert unit["StateDirectoryMode"] == ["0700"]
    assert all(f"{state}/" in command or "--standalone" not in command for command in commands())
    assert f"`{state}`" in PAGE
    assert UNIT.relative_to(ROOT).as_posix() in PAGE


def test_exit_codes_and_times_are_those_of_the_program() -> None:
    unit = settings()

    assert unit["KillSignal"] == ["SIGTERM"]
    assert unit["RestartPreventExitStatus"] == [str(EXIT_REFUSED)]
    assert str(EXIT_FAILED) not in unit["RestartPreventExitStatus"]
    assert unit["Restart"] == ["on-failure"]
    assert float(unit["TimeoutStopSec"][0].removesuffix("s")) > 10 * GRACE_S


def test_the_sandbox_restricts_the_service() -> None:
    unit = settings()

    assert {name: [value] for name, value in PROTECTIONS.items()} == {name: unit[name] for name in PROTECTIONS}
    assert all(
        unit[name] == ["yes"]
        for name in unit
        if name.startswith("Protect") and name not in {"ProtectSystem", "ProtectProc"}
    )
    assert unit["SystemCallFilter"] == ["@system-service", "~@privileged"]
    assert set(unit["RestrictAddressFamilies"][0].split()) == {"AF_INET", "AF_INET6", "AF_UNIX"}
    assert not {"ReadWritePaths", "DynamicUser", "PermissionsStartOnly"} & set(unit)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit_and_finds_it_safe(tmp_path: Path) -> None:
    """With a program that exists in place of the installed one."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(PROGRAM, shutil.which("true") or ""), encoding="utf-8")
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert verified.returncode == 0, verified.stderr
    assert UNIT.name not in verified.stderr, verified.stderr
    level = re.search(r"exposure level for .*: ([\d.]+)", rated.stdout)
    assert level is not None, rated.stdout + rated.stderr
    # Versions weigh differently.
    assert float(level[1]) <= 2.5
