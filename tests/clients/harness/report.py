"""docs/compatibility.md: the part with numbers and reasons, made from a run and checked by one.

Owns: the text between the two marks. Never: touches the rest of the document.
"""

from .suite import HOME

DOCUMENT = HOME.parent.parent / "docs" / "compatibility.md"
BEGIN = "<!-- Written by ./dev clients --write; begin -->"
END = "<!-- Written by ./dev clients --write; end -->"
# How far the passed tests of a run may be from the document's: suites skip by the machine, and
# plain PostgreSQL fails a test now and then as well.
TOLERANCE = 0.01


def render(results):
    """The generated part, from [(suite, listed, comparison)] of all suites."""
    lines = [
        "| suite | language | passed on PostgreSQL | passed on Tutti | listed | failed | not compared |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for suite, _, found in results:
        lines.append(
            f"| {suite.package} | {suite.language} | {found.plain_passed} | {found.tutti_passed} "
            f"| {found.listed_count} | {len(found.unexpected_failures)} | {found.plain_out} |"
        )
    for suite, listed, found in results:
        lines += ["", f"### {suite.package}", ""]
        if suite.chosen:
            lines += [f"Run: {suite.chosen}.", ""]
        if not found.listed:
            lines.append("Nothing is listed.")
            continue
        lines += ["| listed | why |", "|--:|---|"]
        for reason in listed.reasons:
            tests = found.listed.get(reason.id, ())
            if tests or reason.flaky:
                often = " (sometimes)" if reason.flaky else ""
                lines.append(f"| {len(tests)}{often} | {reason.why} |")
    return "\n".join(lines)


def write(results):
    """Puts the generated part into the document."""
    before, _, after = _parts()
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{render(results)}\n\n{END}{after}")


def differences(results):
    """What the document says otherwise than these results; empty if they agree.

    Results of some suites only are compared with their rows.
    """
    _, written, _ = _parts()
    rows = {line.split("|")[1].strip(): line for line in written.splitlines() if line.startswith("| ")}
    found = []
    for suite, listed, comparison in results:
        cells = [cell.strip() for cell in rows.get(suite.package, "").split("|")]
        if len(cells) < 8:
            found.append(f"{suite.package} is not in {DOCUMENT.name}")
            continue
        plain, tutti = int(cells[3]), int(cells[4])
        for said, is_now, what in [
            (plain, comparison.plain_passed, "passed on PostgreSQL"),
            (tutti, comparison.tutti_passed, "passed on Tutti"),
        ]:
            if abs(said - is_now) > max(2, TOLERANCE * said):
                found.append(f"{suite.package}: {what} {is_now}, the document says {said}")
        for reason in listed.reasons:
            if reason.why not in written:
                found.append(f"{suite.package}: the reason {reason.id} is not in the document")
    return found


def _parts():
    text = DOCUMENT.read_text()
    before, begun, rest = text.partition(BEGIN)
    written, ended, after = rest.partition(END)
    if not begun or not ended:
        raise SystemExit(f"{DOCUMENT} has lost its marks {BEGIN} and {END}")
    return before, written, after
