"""One suite's outcomes on Tutti beside those on plain PostgreSQL, judged by the list.

Owns: what is unexpected. What fails or is skipped on plain PostgreSQL is out of the comparison: it
says nothing about Tutti. Never: runs anything.
"""

import dataclasses

from .outcomes import FAILED, PASSED, SKIPPED, Outcome

NOT_RUN = Outcome(FAILED, "did not run")


@dataclasses.dataclass
class Comparison:
    """The numbers of one suite and what was unexpected; tests are by name."""

    plain_passed: int
    plain_out: int
    tutti_passed: int
    # Fails on Tutti, passes on plain PostgreSQL, and is listed: reason's id → tests.
    listed: dict
    # The same, not listed: test → outcome.
    unexpected_failures: dict
    # Listed, and passes on Tutti: test → reason's id.
    unexpected_passes: dict
    # Patterns that name no test of this run: (reason's id, pattern).
    idle_patterns: list

    @property
    def listed_count(self):
        return sum(len(tests) for tests in self.listed.values())

    @property
    def as_expected(self):
        return not (self.unexpected_failures or self.unexpected_passes or self.idle_patterns)


def compare(plain, tutti, listed, *, whole):
    """Compares two runs: `plain` and `tutti` are outcomes by test.

    `whole` says that they were runs of all that is chosen, so that every listed pattern must name
    something.
    """
    # A test of Go that has subtests is counted by these alone where one of them failed
    # (`read_go_events`); then it must be left out on both sides.
    parents = {test.rpartition("/")[0] for test in tutti}
    considered = {test for test, outcome in plain.items() if outcome.result == PASSED}
    idle = listed.idle_patterns(considered, plain) if whole else []
    found = Comparison(0, len(plain) - len(considered), 0, {}, {}, {}, idle)
    for test in sorted(considered):
        if test not in tutti and test in parents:
            continue
        outcome = tutti.get(test, NOT_RUN)
        reason = listed.reason_of(test)
        found.plain_passed += 1
        if outcome.result == PASSED:
            found.tutti_passed += 1
            if reason and not reason.flaky:
                found.unexpected_passes[test] = reason.id
        elif reason:
            found.listed.setdefault(reason.id, []).append(test)
        elif outcome.result == SKIPPED:
            found.unexpected_failures[test] = Outcome(FAILED, f"skipped: {outcome.text}")
        else:
            found.unexpected_failures[test] = outcome
    return found
