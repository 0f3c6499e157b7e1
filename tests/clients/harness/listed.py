"""The lists of tests that are known to fail on Tutti, with the reason of each.

Owns: reading `listed/SUITE.toml` and finding a test's entry. Never: judges a run.

    [[reason]]
    id = "one-database"
    why = "A sentence for users; it is printed in docs/compatibility.md."
    tests = ["tests/test_a.py::TestA::*", …]     # * stands for anything
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
        return any(names(pattern, test) for pattern in self.tests)


def names(pattern, test):
    """Whether a pattern names a test. Only * is special: names are full of brackets."""
    parts = map(re.escape, pattern.split("*"))
    return re.fullmatch(".*".join(parts), test, re.DOTALL) is not None


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

    def idle_patterns(self, passed, all_tests):
        """(reason's id, pattern) of patterns that name none of these tests: to be taken out.

        `passed`: on one PostgreSQL; what is flaky there too need only be among `all_tests`.
        """
        return [
            (reason.id, pattern)
            for reason in self.reasons
            for pattern in reason.tests
            if not any(names(pattern, test) for test in (all_tests if reason.flaky else passed))
        ]
