"""asyncpg: its own tests, out of its source archive."""

from .python import PythonSuite


class Asyncpg(PythonSuite):
    name = "asyncpg"
    package = "asyncpg 0.32.0 (PyPI)"
    source = "asyncpg==0.32.0"
    requirements = ("asyncpg==0.32.0", "distro==1.9.0")
    # The archive's own settings for pytest, as its pyproject.toml has them.
    pytest_options = ("--assert=plain", "--tb=native", "--import-mode=importlib")
