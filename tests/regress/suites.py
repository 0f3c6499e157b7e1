"""The two suites: how they are made ready, run on a server, and what their runners say.

Owns: the runners' arguments and reading their reports. Never: judges. Start reading at `Suite.run`.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import processes

# How PostgreSQL's own runner sets up a database that it makes itself (pg_regress.c, create_database).
# It does not make ours: a cluster serves one, and that exists.
DATABASE_SETTINGS = {
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "bytea_output": "hex",
    "timezone_abbreviations": "Default",
}
# "test boolean   ... ok   75 ms", or in a group without the first word; 15 writes so, later ones TAP.
REPORTED = re.compile(r"^(?:test|    ) +(\S+) +\.\.\. (ok|FAILED|failed \(ignored\)).*?(\d+) ms", re.MULTILINE)
# A step that waits longer than this is cancelled by the isolation tester, and reported.
ISOLATION_STEP_LIMIT_S = 20


@dataclasses.dataclass
class Outcome:
    """One test of one run."""

    name: str
    passed: bool
    took_ms: int


@dataclasses.dataclass
class Ran:
    """One run: outcomes by test, and the directory with what the tests said."""

    tests: dict
    took_s: float
    output: pathlib.Path

    @property
    def passed(self):
        return sum(outcome.passed for outcome in self.tests.values())

    def said(self, test):
        """What a test said, or `None`."""
        path = self.output / "results" / f"{test}.out"
        return path.read_bytes() if path.exists() else None

    def keep(self, kept):
        """Copies what the run wrote to where it stays until the next."""
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.output, kept)
        self.output = kept
        tests = [dataclasses.asdict(outcome) for outcome in self.tests.values()]
        (kept / "ran.json").write_text(json.dumps({"took_s": self.took_s, "tests": tests}))

    @classmethod
    def recall(cls, kept):
        """The run that was kept there."""
        if not (kept / "ran.json").exists():
            raise processes.Failed("there is no last run to judge by")
        held = json.loads((kept / "ran.json").read_text())
        return cls({test["name"]: Outcome(**test) for test in held["tests"]}, held["took_s"], kept)


class Suite:
    """What both suites share: they have the same runner, built twice."""

    name = runner = schedule = database = ""
    # Tests that others need and that are therefore run in any case.
    always = ()

    def prepare(self, sources, place, programs, account):
        """Copies the tests to where the servers' account reaches them, and builds what is C in them."""
        self.place = place
        self.bin = programs.postgres.resolve().parent
        self.runner = self.bin.parent / "lib/pgxs/src/test" / self.runner
        if not self.runner.exists():
            raise processes.Failed(f"{self.runner} is missing (Debian: postgresql-client-15)")
        shutil.copytree(sources / "src/test" / self.name_of_sources, place)
        self.build(sources)

    def build(self, sources):
        """Most suites have nothing to build."""

    def statements(self):
        """What every server's database needs before anything connects."""
        return [
            f"ALTER DATABASE \"{self.database}\" SET {name} TO '{value}'"
            for name, value in DATABASE_SETTINGS.items()
        ]

    def run(self, endpoint, account, wanted, deadline_s):
        """The suite, or the `wanted` tests of it, on a server."""
        output = self.place.parent / f"run-{endpoint.label.lower()}"
        output.mkdir()
        account.give(output)
        schedule = output / "schedule"
        schedule.write_text(self.chosen(wanted))
        command = [self.runner, "--use-existing", f"--bindir={self.bin}", f"--dbname={self.database}"]
        command += [f"--host={endpoint.host}", f"--port={endpoint.port}", "--user=postgres"]
        command += [f"--inputdir={self.place}", f"--outputdir={output}", f"--schedule={schedule}"]
        command += [f"--dlpath={self.place}", *self.options]
        report = output / "report"
        began = time.monotonic()
        with report.open("w") as said:
            self._attempt(command, account, deadline_s, said, output)
        took_s = time.monotonic() - began
        return Ran(self._read(report.read_text(errors="replace"), schedule), took_s, output)

    def _attempt(self, command, account, deadline_s, said, output):
        child = subprocess.Popen(
            [str(word) for word in command],
            cwd=output,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **account.options,
        )
        try:
            # The tests' failures are in the report.
            child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            print(f"took longer than {deadline_s:.0f} s", file=said)
        finally:
            processes.kill_group(child)
            child.wait()

    def environment(self):
        """Without what would make libpq or psql behave otherwise."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        kept["PGISOLATIONTIMEOUT"] = str(ISOLATION_STEP_LIMIT_S)
        return kept

    def chosen(self, wanted):
        """The schedule; with tests `wanted`, reduced to these and to what all need."""
        lines = (self.place / self.schedule).read_text().splitlines()
        if not wanted:
            return "\n".join(lines) + "\n"
        kept, wanted, found = [], {*wanted, *self.always}, set()
        for line in lines:
            if line.startswith("test: "):
                tests = [test for test in line.split()[1:] if test in wanted]
                found.update(tests)
                kept += ["test: " + " ".join(tests)] if tests else []
        if wanted - found:
            raise processes.Failed(f"no such test: {', '.join(sorted(wanted - found))}")
        return "\n".join(kept) + "\n"

    @staticmethod
    def _read(report, schedule):
        """Outcomes by test. What did not run, because the time was up, has failed."""
        tests = {}
        for line in schedule.read_text().splitlines():
            if line.startswith("test: "):
                tests.update((test, Outcome(test, False, 0)) for test in line.split()[1:])
        for name, result, took in REPORTED.findall(report):
            tests[name] = Outcome(name, result == "ok", int(took))
        return tests


class Regression(Suite):
    """Single sessions, twenty at a time: what SQL means."""

    name = name_of_sources = "regress"
    runner = "regress/pg_regress"
    schedule = "parallel_schedule"
    database = "regression"
    options = ("--max-concurrent-tests=20",)
    always = ("test_setup",)

    def build(self, sources):
        """The functions in C that tests use."""
        headers = next((sources / "headers/usr/include/postgresql").glob("*/server"))
        for source in [self.place / "regress.c", *(sources / "contrib/spi" / f"{name}.c" for name in ("autoinc", "refint"))]:
            made = self.place / f"{source.stem}.so"
            processes.run(["cc", "-O1", "-fPIC", "-shared", "-w", "-DREFINT_VERBOSE", f"-I{headers}", source, "-o", made])


class Isolation(Suite):
    """Several sessions, whose steps are interleaved: who waits for whom, and what each sees."""

    name = name_of_sources = "isolation"
    runner = "isolation/pg_isolation_regress"
    schedule = "isolation_schedule"
    database = "isolation_regression"
    options = ()
