"""The script that pauses processes of a command: they are paused, and it ends like the command."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "with_stalls.py"
# It continues after it was stopped and resumed.
CHILD = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
signal.sigwait([signal.SIGCONT])
print("was paused")
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}], check=True); sys.exit(3)"


def with_stalls(*words):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False)


def test_a_process_below_the_command_is_paused_and_the_exit_status_is_the_commands():
    done = with_stalls("--seed", "7", "--longest", "0.2", sys.executable, "-c", PARENT)

    assert (done.returncode, done.stdout) == (3, "was paused\n"), done
    assert re.fullmatch(r"stalls: [1-9]\d*; seed: 7\n", done.stderr)


def test_a_command_without_processes_below_it_is_left_alone():
    done = with_stalls(sys.executable, "-c", "print('done')")

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith("stalls: 0; seed: ")


def test_no_command_is_refused():
    done = with_stalls()

    assert done.returncode == 2
    assert "name a command" in done.stderr
