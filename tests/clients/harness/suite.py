"""What a suite is: somebody else's tests, how they are fetched, and how they are run on a server.

Owns: the interface that `suites/` fill in, and where things are kept. Never: compares.
"""

import dataclasses
import pathlib

# tests/clients
HOME = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Run:
    """One run of a suite on one server."""

    # Where it connects.
    endpoint: object
    # A new directory for what it writes, with nothing in it.
    work: pathlib.Path
    # Names of the tests to run, as outcomes name them; `None` for all of the suite's choice.
    only: list | None
    # Whether to run everything and not only the choice of `Suite.chosen`.
    full: bool
    # When the run must have ended; what then runs has failed.
    deadline_s: float


class Suite:
    """One suite. Subclasses say how it is fetched and run."""

    name = ""
    language = ""
    # What is tested and from where: "asyncpg 0.32.0 (PyPI)".
    package = ""
    # Which of its tests are run by default, and why not all; empty if all are.
    chosen = ""
    database = "postgres"
    user = "postgres"
    # Why it is run only when it is named, and so not in CI; empty if it is always run.
    only_by_name = ""
    # How long one run on one server may take.
    deadline_s = 900.0
    # Programs without which it cannot be fetched or run.
    tools = ()
    # SQL that goes to every server directly before anything connects.
    statements = ()
    # SQL that goes through the server under test.
    setup = ()

    def fetch(self, place):
        """Gets and builds what the suite needs in the directory `place`; cheap if it is there."""
        raise NotImplementedError

    def run(self, place, run):
        """Runs the tests and gives their outcomes by name."""
        raise NotImplementedError


def fetched(place, key):
    """Whether `place` holds what `key` says, and a function that notes that it does."""
    stamp = pathlib.Path(place) / "fetched"

    def note():
        stamp.write_text(key)

    return stamp.exists() and stamp.read_text() == key, note
