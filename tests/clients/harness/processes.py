"""Child processes: to their end within a time, or for as long as a `with` lasts.

Owns: that no child, nor a child's child, outlives its use. Never: knows what the programs are.
"""

import contextlib
import os
import signal
import subprocess
import threading


class Failed(Exception):
    """A program that had to succeed did not; the text holds the end of what it said."""


class Running:
    """The programs that `attempt` waits for, by which thread whatever, and whether to end."""

    def __init__(self):
        self._lock = threading.Lock()
        self._children = set()
        self._ending = False

    def start(self, command, **options):
        """Starts a program in a process group of its own."""
        with self._lock:
            if self._ending:
                raise Failed("asked to end")
            child = subprocess.Popen(command, start_new_session=True, **options)
            self._children.add(child)
            return child

    def forget(self, child):
        """The child has ended, and been waited for."""
        with self._lock:
            self._children.discard(child)

    def end(self):
        """Kills all, and lets none start; whoever waits for one goes on and cleans up."""
        with self._lock:
            self._ending = True
            for child in self._children:
                kill_group(child)


RUNNING = Running()
# What is told of a failed program's output.
SAID_CHARS_MAX = 4000


def run(command, *, cwd=None, env=None, deadline_s=600.0):
    """Runs a program that must succeed, and gives what it said.

    Errors: `Failed`, if it cannot be started, fails, or takes longer than `deadline_s`.
    """
    code, said = attempt(command, cwd=cwd, env=env, deadline_s=deadline_s)
    if code != 0:
        ended = "took too long" if code is None else f"ended with {code}"
        raise Failed(f"{' '.join(map(str, command))} {ended}:\n{said[-SAID_CHARS_MAX:]}")
    return said


def attempt(command, *, cwd=None, env=None, deadline_s=600.0):
    """Runs a program and gives (its exit code, what it said on both streams).

    The code is `None` if it took longer than `deadline_s` and was killed, with all its children.
    """
    try:
        child = RUNNING.start(
            [str(word) for word in command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise Failed(f"cannot run {command[0]}: {error}") from error
    with _group(child):
        try:
            said, _ = child.communicate(timeout=deadline_s)
            code = child.returncode
        except subprocess.TimeoutExpired:
            kill_group(child)
            said, _ = child.communicate()
            code = None
    return code, said.decode("utf-8", "replace")


@contextlib.contextmanager
def _group(child):
    """Whatever happens, the child's process group is gone afterwards."""
    try:
        yield
    finally:
        kill_group(child)
        RUNNING.forget(child)


def kill_group(child):
    """SIGKILL to a child that was started with `start_new_session`, and to its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def stop(child, *, first=signal.SIGTERM, within_s=20.0):
    """Asks a child to end, and kills it if it does not."""
    if child.poll() is None:
        child.send_signal(first)
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
