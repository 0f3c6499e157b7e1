"""lib/pq: its own tests, out of its module."""

from .golang import GoSuite


class LibPq(GoSuite):
    name = "lib-pq"
    package = "lib/pq 1.12.3 (Go modules)"
    module = "github.com/lib/pq"
    version = "v1.12.3"
    # The names that its tests expect.
    database = "pqgo"
    user = "pqgo"
    statements = ("CREATE ROLE pqgo LOGIN SUPERUSER",)

    def environment(self, run):
        return {"PGHOST": "localhost", "PQTEST_BINARY_PARAMETERS": "no"}
