"""Runs PostgreSQL's own regression or isolation suite, on plain PostgreSQL and on a Tutti cluster of three nodes.

Usage: ./dev regress [--isolation] [TEST…]; see README.md here. The exit code is 0 if what passes on
plain PostgreSQL passes through Tutti, but for what `differs.toml` lists. Start reading at `main`.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

# The sources' directory stays as it is.
sys.dont_write_bytecode = True
HOME = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HOME), str(HOME.parent / "clients")]

from harness import processes  # noqa: E402
from harness.servers import Account, Programs, Servers, Template  # noqa: E402
import judge  # noqa: E402
import suites  # noqa: E402

REPOSITORY = HOME.parent.parent
DEPS = REPOSITORY / ".deps" / "regress"
# Set (to anything) where programs may be missing, as for all tests of the product.
MAY_SKIP = "TUTTI_TESTS_MAY_SKIP"

_started = time.monotonic()


def say(text):
    """Progress, with the seconds since the start."""
    print(f"regress {time.monotonic() - _started:5.0f} s: {text}", file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(prog="./dev regress", description=__doc__.split("\n")[0])
    parser.add_argument("test", nargs="*", metavar="TEST", help="only these, with what they need")
    parser.add_argument("--isolation", action="store_true", help="the isolation suite")
    parser.add_argument("--release", action="store_true", help="with the program built for speed")
    parser.add_argument("--tutti", help="the binary (default: target/debug/tutti)")
    parser.add_argument(
        "--last-plain",
        action="store_true",
        help="do not run plain PostgreSQL: what the last run on it said counts",
    )
    parser.add_argument("--only", choices=["plain", "tutti"], help="run on this one only, and judge nothing")
    parser.add_argument("--deadline", type=float, default=1500.0, help="seconds that one run may take")
    return parser.parse_args()


def main():
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    tutti = given.tutti or target / ("dist" if given.release else "debug") / "tutti"
    suite = suites.Isolation() if given.isolation else suites.Regression()
    if not (DEPS / "fetched").exists():
        if MAY_SKIP in os.environ:
            say("skipped: .deps/regress is not there")
            return
        raise SystemExit(f"needs .deps/regress: ./dev regress fetches it; with {MAY_SKIP} set it is skipped")
    with tempfile.TemporaryDirectory(prefix="tutti-regress-") as place:
        # The servers' account must reach its directories.
        os.chmod(place, 0o755)
        plain, through = run_both(given, suite, Programs(tutti), pathlib.Path(place))
    if given.only:
        for outcome in (plain or through).tests.values():
            if not outcome.passed:
                say(f"failed: {outcome.name}")
        return
    found = judge.judge(plain, through, judge.listed(HOME / "differs.toml", suite.name), whole=not given.test)
    for line in found.lines():
        print(line)
    say("as expected" if found.as_expected else "not as expected")
    sys.exit(0 if found.as_expected else 1)


def run_both(given, suite, programs, place):
    """Both runs, one after the other so that their times compare; a run that is not wanted is `None`."""
    account = Account()
    template = Template(programs, account, place)
    suite.prepare(DEPS, place / "suite", programs, account)
    kept = DEPS / "last" / suite.name
    with Servers(programs, template, place, database=suite.database, statements=suite.statements()) as servers:
        plain = through = None
        if given.last_plain:
            plain = suites.Ran.recall(kept / "plain")
        elif given.only != "tutti":
            plain = run(given, suite, servers.plain, account, kept / "plain")
        if given.only != "plain":
            through = run(given, suite, servers.tutti, account, kept / "tutti")
            shutil.copy(servers.log, kept / "tutti" / "gateway.log")
    return plain, through


def run(given, suite, endpoint, account, kept):
    """One run on one server. What it wrote is kept in .deps/regress/last."""
    say(f"{suite.name} suite on {endpoint.label}")
    ran = suite.run(endpoint, account, given.test, given.deadline)
    say(f"{suite.name} suite on {endpoint.label}: {ran.passed} of {len(ran.tests)} passed, {ran.took_s:.1f} s")
    ran.keep(kept)
    return ran


if __name__ == "__main__":
    try:
        main()
    except processes.Failed as failed:
        sys.exit(f"the suite could not be run: {failed}")
