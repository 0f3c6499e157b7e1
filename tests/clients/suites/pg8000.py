"""pg8000: its own tests, out of its source archive."""

from .python import PythonSuite


class Pg8000(PythonSuite):
    name = "pg8000"
    package = "pg8000 1.31.6 (PyPI)"
    chosen = (
        "without `auth/` (its tests want a pg_hba.conf written for them) and without the benchmarks"
    )
    source = "pg8000==1.31.6"
    requirements = ("pg8000==1.31.6", "pytest-mock==3.15.1", "pytz")
    tests = ("test",)
    paths = ("test/native", "test/dbapi", "test/legacy")
    setup = ("CREATE EXTENSION hstore",)

    def options(self, run):
        if run.full:
            return ()
        # The test with 65,535 parameters takes longer than the limit on plain PostgreSQL too.
        left_out = [f"--ignore={path}/auth" for path in self.paths]
        left_out += [f"--ignore={path}/test_benchmarks.py" for path in self.paths]
        return (*left_out, "--deselect=test/native/test_query.py::test_max_parameters")
