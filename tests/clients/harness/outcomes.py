"""What became of each test of one run, as suites report it while they run.

A report is a file of JSON lines, one event each, written as things happen, so that a hang or a
crash still leaves names: {"test": NAME, "event": "start" | "pass" | "fail" | "skip", "text": …}.
Go's own events are read as they are. Owns: reading both. Never: judges.
"""

import dataclasses
import json

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_BY_EVENT = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
_TEXT_CHARS_MAX = 3000
_UNFINISHED = "started and never ended"


@dataclasses.dataclass
class Outcome:
    """`result` is one of the three above; `text` is what a failure said."""

    result: str
    text: str = ""


def read_events(lines):
    """Outcomes by test. A test that started and never ended has failed: it hung or crashed."""
    found = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        test, what = event["test"], event["event"]
        if what == "start":
            found.setdefault(test, Outcome(FAILED, _UNFINISHED))
        elif test not in found or found[test].result != FAILED or _unfinished(found[test]):
            found[test] = Outcome(_BY_EVENT[what], (event.get("text") or "")[:_TEXT_CHARS_MAX])
    return found


def _unfinished(outcome):
    return outcome.text.startswith(_UNFINISHED)


def read_go_events(lines, module):
    """Outcomes by `package: Test/sub`, from `go test -json`.

    A test whose subtest failed is not counted itself: its failure says nothing more.
    """
    found, said = {}, {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if "Test" not in event:
            continue
        package = event["Package"].removeprefix(module).strip("/") or "."
        test = f"{package}: {event['Test']}"
        action = event["Action"]
        if action == "run":
            found.setdefault(test, Outcome(FAILED, _UNFINISHED))
        elif action in _BY_EVENT:
            found[test] = Outcome(_BY_EVENT[action], "".join(said.get(test, ()))[:_TEXT_CHARS_MAX])
        elif action == "output" and not event["Output"].startswith("=== "):
            said.setdefault(test, []).append(event["Output"])
    for test, outcome in found.items():
        if _unfinished(outcome) and test in said:
            # What ended the process, if this is the test that did.
            text = "\n".join([_UNFINISHED, "".join(said[test])[-_TEXT_CHARS_MAX:]])
            found[test] = Outcome(FAILED, text)
    parents = {
        test[: cut]
        for test, outcome in found.items()
        if outcome.result == FAILED
        for cut in range(len(test))
        if test[cut] == "/" and test[:cut] in found
    }
    return {test: outcome for test, outcome in found.items() if test not in parents}
