"""Runs client test suites that others wrote, on a Tutti cluster of three nodes and on plain PostgreSQL.

Usage: ./dev clients [SUITE…]; see README.md here. The exit code is 0 if every test did what
`listed/` and docs/compatibility.md say. Start reading at `main`.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

# The sources' directory stays as it is.
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness import processes, report  # noqa: E402
from harness.comparison import compare  # noqa: E402
from harness.listed import Listed  # noqa: E402
from harness.outcomes import PASSED, Outcome  # noqa: E402
from harness.servers import Account, Programs, Servers, Template  # noqa: E402
from harness.suite import HOME, Run  # noqa: E402
import suites  # noqa: E402

REPOSITORY = HOME.parent.parent
DEPS = REPOSITORY / ".deps" / "clients"
# Set (to anything) where programs may be missing, as for all tests of the product.
MAY_SKIP = "TUTTI_TESTS_MAY_SKIP"
LAST_RUN = "last-run.json"
PLAIN = "plain"
FAILED_SHOWN_MAX = 60
SECOND_SHOWN_MAX = 10
# More than these is no matter of single tests' deadlines.
SECOND_TRIED_MAX = 100
# How often a suite that has broken off is run again.
RESTARTS_MAX = 2

_started = time.monotonic()
_saying = threading.Lock()


def say(text):
    """Progress, with the seconds since the start."""
    with _saying:
        print(f"clients {time.monotonic() - _started:5.0f} s: {text}", file=sys.stderr, flush=True)


def arguments():
    names = [suite.name for suite in suites.ALL]
    parser = argparse.ArgumentParser(prog="./dev clients", description=__doc__.split("\n")[0])
    parser.add_argument("suite", nargs="*", metavar="SUITE", help=f"of: {', '.join(names)}")
    parser.add_argument("--full", action="store_true", help="all tests, not only the choice made for CI")
    parser.add_argument("--write", action="store_true", help="write the results into docs/compatibility.md")
    parser.add_argument(
        "--only-failed",
        action="store_true",
        help="only what failed on Tutti in the last run of the suite, listed or not",
    )
    parser.add_argument(
        "--last",
        action="store_true",
        help="run nothing: judge the suites' last whole runs by the lists as they are now",
    )
    parser.add_argument("--test", action="append", metavar="NAME", help="only this test (repeatable)")
    parser.add_argument("--jobs", type=int, default=2, help="suites at the same time (default 2)")
    parser.add_argument("--tutti", help="the binary (default: target/debug/tutti)")
    parser.add_argument("--fetch", action="store_true", help="only fetch and build the suites")
    given = parser.parse_args()
    unknown = set(given.suite) - set(names)
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if given.write and (given.test or given.only_failed or given.full):
        parser.error("--write needs a run of all that is chosen")
    return given


class Context:
    """What all suites of one invocation share."""

    def __init__(self, given, place):
        self.given, self.place = given, pathlib.Path(place)
        target = os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")
        self.programs = Programs(given.tutti or pathlib.Path(target) / "debug" / "tutti")
        self.template = Template(self.programs, Account(), place)

    def judge(self, suite):
        """Fetches a suite, runs it on both servers, and compares."""
        listed = Listed.read(HOME / "listed" / f"{suite.name}.toml")
        if self.given.last:
            return self.compared(suite, *self.recalled(suite), listed, whole=True)
        missing = [tool for tool in suite.tools if not shutil.which(tool)]
        if missing and MAY_SKIP in os.environ:
            say(f"{suite.name} skipped: {', '.join(missing)} not installed")
            return None
        if missing:
            raise processes.Failed(f"needs {', '.join(missing)}; with {MAY_SKIP} set it is skipped")
        suite.fetch(DEPS / suite.name)
        if self.given.fetch:
            return None
        only = self.only(suite)
        servers = Servers(
            self.programs,
            self.template,
            self.place / suite.name,
            database=suite.database,
            statements=suite.statements,
            # What is tested is what happens on several nodes; with home tables all would be node 1's.
            default_distribution="replicated",
        )
        with servers:
            runs = [(servers.plain, PLAIN), (servers.tutti, "tutti")]
            with concurrent.futures.ThreadPoolExecutor(2) as both:
                plain, tutti = both.map(lambda run: self.run(suite, *run, only), runs)
            first = compare(plain, tutti, listed, whole=False)
            for _ in range(RESTARTS_MAX):
                if all(test in tutti for test in first.unexpected_failures):
                    break
                # Tests that know deadlines of a tenth of a second end the whole suite where one passes.
                say(f"{suite.name} broke off; running it once more, beside nothing")
                tutti = self._run_once(suite, servers.tutti, "again", only)
                first = compare(plain, tutti, listed, whole=False)
            self.again(suite, servers, first, tutti)
        whole = only is None and not self.given.full
        self.remember(suite, plain, tutti, whole)
        return self.compared(suite, plain, tutti, listed, whole=whole)

    @staticmethod
    def compared(suite, plain, tutti, listed, *, whole):
        """The suite with its comparison, which is told."""
        found = compare(plain, tutti, listed, whole=whole)
        say(
            f"{suite.name}: {found.tutti_passed} of {found.plain_passed} passed, {found.listed_count} "
            f"listed, {len(found.unexpected_failures)} failed, {len(found.unexpected_passes)} passed "
            f"although listed ({found.plain_out} not compared)"
        )
        return suite, found

    def run(self, suite, endpoint, label, only):
        """One run on one server."""
        say(f"{suite.name} on {endpoint.label}")
        began = time.monotonic()
        endpoint.psql(suite.setup, database=suite.database, user=suite.user)
        outcomes = self._run_once(suite, endpoint, label, only)
        passed = sum(outcome.result == PASSED for outcome in outcomes.values())
        took = time.monotonic() - began
        say(f"{suite.name} on {endpoint.label}: {passed} of {len(outcomes)} passed, {took:.0f} s")
        # On Tutti the tests that did not run fail, by name; here they would be compared no more.
        if label == PLAIN and took > suite.deadline_s:
            raise processes.Failed(f"took more than {suite.deadline_s:.0f} s on {endpoint.label}")
        return outcomes

    def _run_once(self, suite, endpoint, label, only):
        work = self.place / suite.name / f"run-{label}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        return suite.run(
            DEPS / suite.name,
            Run(endpoint, work, only, self.given.full, suite.deadline_s),
        )

    def again(self, suite, servers, found, tutti):
        """Runs unexpected failures once more by themselves: foreign tests know deadlines too.

        Changes `tutti` where they pass now, and says so.
        """
        failed = list(found.unexpected_failures)
        if not failed or len(failed) > SECOND_TRIED_MAX:
            return
        say(f"{suite.name}: {len(failed)} unexpected failures; running them once more")
        again = self._run_once(suite, servers.tutti, "again", failed)
        passed = {
            test: outcome
            for test, outcome in again.items()
            if outcome.result == PASSED and test in found.unexpected_failures
        }
        tutti.update(passed)
        for test in list(passed)[:SECOND_SHOWN_MAX]:
            say(f"{suite.name}: passed the second time: {test}")
        say(f"{suite.name}: {len(passed)} of {len(failed)} passed the second time")

    def only(self, suite):
        """The tests to run, or `None` for all."""
        if self.given.test:
            return self.given.test
        if not self.given.only_failed:
            return None
        path = self._memory(suite)
        return json.loads(path.read_text()) if path.exists() else None

    def remember(self, suite, plain, tutti, whole):
        """Keeps the outcomes of a whole run, and what failed on Tutti alone, for the next."""
        if whole:
            kept = [
                {test: dataclasses.asdict(outcome) for test, outcome in outcomes.items()}
                for outcomes in (plain, tutti)
            ]
            (DEPS / suite.name / LAST_RUN).write_text(json.dumps(kept))
        failed = {
            test: tutti[test].text if test in tutti else "did not run"
            for test, outcome in plain.items()
            if outcome.result == PASSED and (test not in tutti or tutti[test].result != PASSED)
        }
        if self.given.test:
            return
        self._memory(suite).write_text(json.dumps(list(failed), indent=1))
        texts = "".join(f"## {test}\n{text}\n\n" for test, text in failed.items())
        (DEPS / suite.name / "last-failures.txt").write_text(texts)

    def recalled(self, suite):
        """The outcomes of the last whole run, on plain PostgreSQL and on Tutti."""
        path = DEPS / suite.name / LAST_RUN
        if not path.exists():
            raise processes.Failed("there is no whole run of it to judge")
        return [
            {test: Outcome(**outcome) for test, outcome in outcomes.items()}
            for outcomes in json.loads(path.read_text())
        ]

    @staticmethod
    def _memory(suite):
        return DEPS / suite.name / "last-failures.json"


def tell(suite, found):
    """What was unexpected, in full; whether there was anything."""
    for test, outcome in list(found.unexpected_failures.items())[:FAILED_SHOWN_MAX]:
        print(f"\nFAILED on Tutti only: {suite.name}: {test}\n{indent(outcome.text)}")
    more = len(found.unexpected_failures) - FAILED_SHOWN_MAX
    if more > 0:
        print(f"\n… and {more} more; see .deps/clients/{suite.name}/last-failures.txt")
    for test, reason in found.unexpected_passes.items():
        print(f"\nPASSED although listed ({reason}): {suite.name}: {test}")
    for reason, pattern in found.idle_patterns:
        print(f"\nlisted ({reason}), but names no test of {suite.name} that PostgreSQL passes: {pattern}")
    return not found.as_expected


def indent(text):
    return "".join(f"    {line}\n" for line in text.strip().splitlines()[-25:])


def terminated(*_):
    processes.RUNNING.end()
    sys.exit("terminated")


def main():
    given = arguments()
    if given.suite:
        chosen = [suite for suite in suites.ALL if suite.name in given.suite]
    else:
        chosen = [suite for suite in suites.ALL if not suite.only_by_name]
        for suite in suites.ALL:
            if suite.only_by_name:
                say(f"{suite.name} is run by its name only: {suite.only_by_name}")
    # A terminated runner must stop its servers too: its threads do, when what they wait for ends.
    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGINT, terminated)
    DEPS.mkdir(parents=True, exist_ok=True)
    bad, results = False, []
    with tempfile.TemporaryDirectory(prefix="tutti-clients-") as place:
        # The servers' account must reach its directories.
        os.chmod(place, 0o755)
        context = Context(given, place)
        with concurrent.futures.ThreadPoolExecutor(max(1, given.jobs)) as pool:
            futures = {suite.name: pool.submit(context.judge, suite) for suite in chosen}
            for suite in chosen:
                try:
                    result = futures[suite.name].result()
                except (processes.Failed, OSError) as failed:
                    print(f"\n{suite.name} could not be run: {failed}")
                    bad = True
                    continue
                if result:
                    results.append(result)
    for suite, found in results:
        bad |= tell(suite, found)
    whole = not (given.test or given.only_failed or given.full)
    if given.write:
        # Numbers of a run that broke off or went wrong would mislead.
        report.write(suites.ALL, [result for result in results if result[1].as_expected])
    elif whole and not given.fetch:
        for difference in report.differences(suites.ALL, results):
            print(f"\n{difference} (./dev clients --write)")
            bad = True
    say("not as expected" if bad else "as expected")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
