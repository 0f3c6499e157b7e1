"""psycopg2: its own tests, out of its source archive."""

from .python import PythonSuite


class Psycopg2(PythonSuite):
    name = "psycopg2"
    package = "psycopg2 2.9.13 (PyPI), with libpq"
    source = "psycopg2==2.9.13"
    requirements = ("psycopg2-binary==2.9.13",)

    def environment(self, run):
        return {"PSYCOPG2_TESTDB": self.database}
