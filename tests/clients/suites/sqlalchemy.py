"""SQLAlchemy: the suite that every dialect must pass, through psycopg 3."""

from .python import PythonSuite


class SQLAlchemy(PythonSuite):
    name = "sqlalchemy"
    package = "SQLAlchemy 2.1.9 (PyPI), dialect suite, through psycopg 3.3.9"
    chosen = "`test/dialect/test_suite.py`: the suite that tests dialects; the rest tests SQLAlchemy"
    source = "sqlalchemy==2.1.9"
    requirements = ("SQLAlchemy==2.1.9", "psycopg[binary]==3.3.9", "greenlet")
    tests = ("test", "lib/sqlalchemy/testing/plugin", "setup.cfg", "pyproject.toml")
    paths = ("test/dialect/test_suite.py",)
    setup = ("CREATE SCHEMA test_schema", "CREATE SCHEMA test_schema_2", "CREATE EXTENSION hstore")

    def options(self, run):
        server = f"{run.endpoint.host}:{run.endpoint.port}"
        return ("--dburi", f"postgresql+psycopg://{self.user}@{server}/{self.database}", "--maxfail=0")
