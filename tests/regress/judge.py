"""A suite's run through Tutti beside that on plain PostgreSQL, judged by `differs.toml`.

Owns: what is unexpected. What fails on plain PostgreSQL says nothing about Tutti, and is counted.
Never: runs anything.
"""

import dataclasses
import tomllib


@dataclasses.dataclass
class Differs:
    """Why a test fails through Tutti that passes on plain PostgreSQL."""

    why: str
    # May also pass; sparingly.
    flaky: bool = False


def listed(path, suite):
    """The list of one suite: test → why it differs."""
    tests = tomllib.loads(path.read_text()).get(suite, {})
    return {test: Differs(**given) if isinstance(given, dict) else Differs(given) for test, given in tests.items()}


@dataclasses.dataclass
class Found:
    """What came of a comparison; tests are names."""

    plain: object
    tutti: object
    # Passes on plain PostgreSQL only, and is listed: test → why.
    known: dict
    # The same, not listed.
    failed: list
    # Listed, and passes: test → why.
    passed_although_listed: dict
    # Listed, and no test that passes on plain PostgreSQL.
    idle: list
    # Fails on both, and said the same on both.
    alike: list

    @property
    def as_expected(self):
        return not (self.failed or self.passed_although_listed or self.idle)

    def lines(self):
        """What to tell."""
        for test in self.failed:
            yield f"FAILED through Tutti only: {test}"
        for test, why in self.passed_although_listed.items():
            yield f"PASSED although listed ({why}): {test}"
        for test in self.idle:
            yield f"listed, but no test that passes on plain PostgreSQL: {test}"
        if self.failed:
            yield "see .deps/regress/last/*/tutti/regression.diffs"
        out = len(self.plain.tests) - self.plain.passed
        yield (
            f"PostgreSQL passes {self.plain.passed} of {len(self.plain.tests)} in {self.plain.took_s:.1f} s, Tutti "
            f"{self.tutti.passed} in {self.tutti.took_s:.1f} s, {self.tutti.took_s / self.plain.took_s:.2f} times "
            f"as long; {len(self.known)} listed; of {out} that fail on PostgreSQL {len(self.alike)} "
            f"say the same through Tutti"
        )


def judge(plain, tutti, differs, *, whole):
    """Compares two runs; `whole` says that they were runs of all tests."""
    found = Found(plain, tutti, {}, [], {}, [], [])
    for test, outcome in plain.tests.items():
        through = tutti.tests.get(test)
        if through is None:
            continue
        if not outcome.passed:
            if plain.said(test) == tutti.said(test):
                found.alike.append(test)
        elif through.passed:
            if test in differs and not differs[test].flaky:
                found.passed_although_listed[test] = differs[test].why
        elif test in differs:
            found.known[test] = differs[test].why
        else:
            found.failed.append(test)
    if whole:
        found.idle = [test for test in differs if test not in plain.tests or not plain.tests[test].passed]
    return found
