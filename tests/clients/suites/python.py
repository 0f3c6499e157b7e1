"""Suites run by pytest: a virtual environment, and the tests out of the package's source archive."""

import os
import shutil
import sys
import tarfile

from harness import processes
from harness.outcomes import read_events
from harness.suite import HOME, Suite, fetched

# What every suite here is run with.
RUNNER = ("pytest==8.4.2", "pytest-timeout==2.4.0")


class PythonSuite(Suite):
    """Tests from a source archive on PyPI, against the same version's wheel."""

    language = "Python"
    # "asyncpg==0.32.0"; the source archive that holds the tests.
    source = ""
    # What is installed: the client itself, and what its tests import.
    requirements = ()
    # Files or directories of the archive that are copied for a run.
    tests = ("tests",)
    # What pytest is asked to collect, in order.
    paths = ("tests",)
    pytest_options = ()
    test_limit_s = 30

    def fetch(self, place):
        key = "\n".join([self.source, *RUNNER, *self.requirements])
        there, note = fetched(place, key)
        if there:
            return
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        make_venv(place / "venv")
        python = place / "venv" / "bin" / "python"
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        processes.run([*pip, "install", *RUNNER, *self.requirements])
        package = self.source.split("==")[0]
        command = ["download", "--no-deps", "--no-binary", package, "-d", place / "archive"]
        processes.run([*pip, *command, self.source])
        (archive,) = (place / "archive").iterdir()
        with tarfile.open(archive) as packed:
            packed.extractall(place / "unpacked", filter="data")
        (root,) = (place / "unpacked").iterdir()
        root.rename(place / "source")
        note()

    def run(self, place, run):
        for path in self.tests:
            origin, copy = place / "source" / path, run.work / path
            if origin.is_dir():
                shutil.copytree(origin, copy)
            else:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin, copy)
        events = run.work / "events"
        events.touch()
        env = run.endpoint.environment(database=self.database, user=self.user)
        env.update(self.environment(run), CLIENTS_EVENTS=str(events))
        env["PYTHONPATH"] = os.pathsep.join([str(HOME / "plugins"), str(run.work)])
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        if run.only is not None:
            (run.work / "only").write_text("\n".join(run.only))
            env["CLIENTS_ONLY"] = str(run.work / "only")
        command = [place / "venv" / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "clients_events", "-p", "no:faulthandler"]
        command += [f"--timeout={self.test_limit_s}", *self.options(run), *self.paths]
        code, said = processes.attempt(command, cwd=run.work, env=env, deadline_s=run.deadline_s)
        (run.work / "said").write_text(said)
        found = read_events(events.read_text().splitlines())
        # 0: all passed, 1: some failed; anything else before a test ran is no result.
        if not found and not (run.only is not None and code == 5):
            raise processes.Failed(f"pytest ended with {code} before any test:\n{said[-3000:]}")
        return found

    def environment(self, run):
        """Further variables for a run."""
        return {}

    def options(self, run):
        """Further options of pytest for a run."""
        return self.pytest_options


def make_venv(path):
    """A virtual environment with pip, where Python has ensurepip or Debian's wheel of pip."""
    code, said = processes.attempt([sys.executable, "-m", "venv", path])
    if code != 0:
        raise processes.Failed(f"python3 -m venv does not work (Debian: python3-venv):\n{said}")
