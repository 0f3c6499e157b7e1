"""The lists of tests that are known to fail on Tutti, with the reason of each.

Owns: reading `listed/SUITE.toml` and finding a test's entry. Never: judges a run.

    [[reason]]
    id = "one-database"
    why = "A sentence for users; it is printed in docs/compatibility.md."
    tests = ["tests/test_a.py::TestA::*", …]     # fnmatch patterns
    flaky = true                                  # may also pass; sparingly
"""

import dataclasses
import re
import tomllib


@dataclasses.dataclass
class Reason:
    """Why some tests fail on Tutti and pass on one PostgreSQL."""

    id: str
    why: str
    tests: list
    flaky: bool = False

    def matches(self, test):
        """Whether one of the patterns names this test."""
        return any(_as_regex(pattern).fullmatch(test) for pattern in self.tests)


def _as_regex(pattern):
    # Only * is special: names of tests are full of brackets and question marks.
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


class Listed:
    """All reasons of one suite."""

    def __init__(self, reasons):
        self.reasons = reasons

    @classmethod
    def read(cls, path):
        """Reads a list; a suite without one has nothing listed."""
        if not path.exists():
            return cls([])
        entries = tomllib.loads(path.read_text()).get("reason", [])
        return cls([Reason(**entry) for entry in entries])

    def reason_of(self, test):
        """The first reason that names this test, or `None`."""
        return next((reason for reason in self.reasons if reason.matches(test)), None)
