"""Suites run by `go test`: a module from the module proxy, copied out of the cache to be writable."""

import json
import re
import shutil

from harness import processes
from harness.outcomes import read_go_events
from harness.suite import Suite, fetched

# A package whose tests panic or hang is started again with those that did not run.
RESTARTS_MAX = 6


class GoSuite(Suite):
    """Tests in a module's own packages."""

    language = "Go"
    tools = ("go",)
    module = ""
    version = ""
    packages = ("./...",)
    # How long one package's tests may take.
    package_limit_s = 150
    # A regular expression of tests that are not run by default; `chosen` says why.
    left_out = ""

    def fetch(self, place):
        there, note = fetched(place, f"{self.module}@{self.version}")
        if there:
            return
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        command = ["go", "mod", "download", "-json", f"{self.module}@{self.version}"]
        described = processes.run(command, cwd=place)
        source = place / "source"
        shutil.copytree(json.loads(described)["Dir"], source)
        for path in [source, *source.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
        self.adapt(source)
        # Compiles, so that a run's time is its own.
        command = ["go", "test", "-c", "-o", f"{place / 'compiled'}/", *self.packages]
        processes.run(command, cwd=source, deadline_s=900)
        note()

    def adapt(self, source):
        """Changes to the sources that the suite cannot be run without."""

    def run(self, place, run):
        env = run.endpoint.environment(database=self.database, user=self.user)
        env.update(self.environment(run))
        source = place / "source"
        if run.only is not None:
            selections = {}
            for test in run.only:
                package, name = test.split(": ", 1)
                selections.setdefault(package, set()).add(name.split("/")[0])
            found = {}
            for package, names in selections.items():
                selected = ["-run", f"^({'|'.join(map(re.escape, sorted(names)))})$"]
                found |= self._packages(source, run, env, [f"./{package}"], selected)
            wanted = set(run.only)
            return {test: outcome for test, outcome in found.items() if test in wanted}
        skipped = ["-skip", self.left_out] if self.left_out and not run.full else []
        found = self._packages(source, run, env, self.packages, skipped)
        return found | self._rest(source, run, env, found, skipped)

    def _rest(self, source, run, env, found, skipped):
        """What did not run because an earlier test of its package crashed or hung."""
        added = {}
        for package in sorted({test.split(": ")[0] for test in found}):
            every = self._names(source, package, env)
            for _ in range(RESTARTS_MAX):
                ran = {
                    test.split(": ", 1)[1].split("/")[0]
                    for test in [*found, *added]
                    if test.split(": ")[0] == package
                }
                missing = [name for name in every if name not in ran]
                if skipped:
                    missing = [name for name in missing if not re.search(skipped[1], name)]
                if not missing:
                    break
                selected = ["-run", f"^({'|'.join(missing)})$"]
                added |= self._packages(source, run, env, [f"./{package}"], selected)
        return added

    def _names(self, source, package, env):
        """The tests and examples of a package."""
        command = ["go", "test", "-list", "^(Test|Example)", f"./{package}"]
        # Its TestMain may find something to complain of; the names are there all the same.
        _, listed = processes.attempt(command, cwd=source, env=env, deadline_s=120)
        return [line for line in listed.splitlines() if re.match(r"^(Test|Example)\w*$", line)]

    def _packages(self, source, run, env, packages, selection):
        command = ["go", "test", "-json", "-count=1", "-p=1", f"-timeout={self.package_limit_s}s"]
        command += [*selection, *packages]
        _, said = processes.attempt(command, cwd=source, env=env, deadline_s=run.deadline_s)
        with (run.work / "said").open("a") as log:
            log.write(said)
        return read_go_events(said.splitlines(), self.module)

    def environment(self, run):
        """Further variables for a run."""
        return {}
