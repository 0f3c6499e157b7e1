"""pgx: its own tests, out of its module."""

from .golang import GoSuite


class Pgx(GoSuite):
    name = "pgx"
    package = "pgx 5.12.0 (Go modules)"
    module = "github.com/jackc/pgx/v5"
    version = "v5.12.0"
    only_by_name = "the list of its known failures is not complete yet"
    # As testsetup/postgresql_setup.sql, without the roles that only log in by TLS or password.
    setup = (
        "CREATE EXTENSION hstore",
        "CREATE EXTENSION ltree",
        "CREATE DOMAIN uint64 AS numeric(20,0)",
        """CREATE USER " tricky, ' } "" \\ test user " SUPERUSER""",
    )

    def environment(self, run):
        server = f"host={run.endpoint.host} port={run.endpoint.port}"
        where = f"{server} user={self.user} database={self.database} sslmode=disable"
        return {"PGX_TEST_DATABASE": where, "PGX_TEST_TCP_CONN_STRING": where}
