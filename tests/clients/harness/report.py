"""docs/compatibility.md: the part with numbers and reasons, made from runs and checked by runs.

The numbers are kept in `results.json`, suite by suite, so that one suite can be run and written
anew. Owns: that file, and the text between the two marks. Never: touches the rest of the document.
"""

import json

from .listed import Listed
from .suite import HOME

RESULTS = HOME / "results.json"
DOCUMENT = HOME.parent.parent / "docs" / "compatibility.md"
BEGIN = "<!-- Written by ./dev clients --write; begin -->"
END = "<!-- Written by ./dev clients --write; end -->"
# A run with a smaller part of the document's passed tests has not really run the suite. Suites skip by
# the machine, and plain PostgreSQL fails a test now and then as well: each single test is judged by
# the lists, not by these numbers.
SMALLEST_PART = 0.5

HEADER = """| suite | language | passed on PostgreSQL | passed on Tutti | listed | failed | not compared |
|---|---|--:|--:|--:|--:|--:|"""


def numbers(found):
    """What is kept of a comparison."""
    return {
        "plain": found.plain_passed,
        "tutti": found.tutti_passed,
        "listed": {reason: len(tests) for reason, tests in sorted(found.listed.items())},
        "failed": len(found.unexpected_failures),
        "out": found.plain_out,
    }


def write(suites, judged):
    """Keeps the numbers of the suites that were run, [(suite, comparison)], and writes the part."""
    results = _results() | {suite.name: numbers(found) for suite, found in judged}
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    before, _, after = _parts()
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{_render(suites, results)}\n\n{END}{after}")


def differences(suites, judged):
    """In what the document is not what it must be after these runs; empty if it is."""
    results = _results()
    found = []
    for suite, comparison in judged:
        said = results.get(suite.name)
        if said is None:
            found.append(f"{suite.name} has no numbers in {DOCUMENT.name}")
            continue
        now = numbers(comparison)
        for key, what in [("plain", "passed on PostgreSQL"), ("tutti", "passed on Tutti")]:
            if now[key] < SMALLEST_PART * said[key]:
                found.append(f"{suite.name}: {now[key]} {what}, {DOCUMENT.name} says {said[key]}")
    _, written, _ = _parts()
    if written.strip() != _render(suites, results).strip():
        found.append(f"{DOCUMENT.name} is not what {RESULTS.name} and the lists make of it")
    return found


def _results():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _render(suites, results):
    lines = [HEADER]
    shown = [(suite, results[suite.name]) for suite in suites if suite.name in results]
    for suite, result in shown:
        cells = [suite.package, suite.language, result["plain"], result["tutti"]]
        cells += [sum(result["listed"].values()), result["failed"], result["out"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for suite, result in shown:
        lines += ["", f"### {suite.package}", ""]
        if suite.chosen:
            lines += [f"Run: {suite.chosen}.", ""]
        reasons = Listed.read(HOME / "listed" / f"{suite.name}.toml").reasons
        if not reasons:
            lines.append("Nothing is listed.")
            continue
        lines += ["| listed | why |", "|--:|---|"]
        for reason in reasons:
            often = " (sometimes)" if reason.flaky else ""
            lines.append(f"| {result['listed'].get(reason.id, 0)}{often} | {reason.why} |")
    return "\n".join(lines)


def _parts():
    text = DOCUMENT.read_text()
    before, begun, rest = text.partition(BEGIN)
    written, ended, after = rest.partition(END)
    if not begun or not ended:
        raise SystemExit(f"{DOCUMENT} has lost its marks {BEGIN} and {END}")
    return before, written, after
