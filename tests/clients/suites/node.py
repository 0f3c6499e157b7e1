"""node-postgres: `pg`, tested by the packages around it that publish their tests.

`pg` itself publishes none; pg-pool, pg-cursor and pg-query-stream (the versions that still hold their
tests) and @databases/pg are run with the current `pg` below them.
"""

import json
import os
import re
import shutil

from harness import processes
from harness.outcomes import Outcome, FAILED, PASSED, SKIPPED, read_events
from harness.suite import HOME, Suite, fetched

BY_MOCHA = ("pg-pool", "pg-cursor", "pg-query-stream")
BY_JEST = "@databases/pg"
# They import packages whose own dependencies are in no registry.
NOT_LOADABLE = (
    "pg-query-stream/test/pauses.js",
    "pg-query-stream/test/stream-tester.js",
    "pg-query-stream/test/stream-tester-timestamp.js",
)
TEST_LIMIT_MS = 20_000
_JEST_RESULTS = {"passed": PASSED, "failed": FAILED}


class Node(Suite):
    name = "node"
    language = "JavaScript"
    tools = ("node", "npm")
    package = (
        "pg 8.23.1 (npm), by the tests of pg-pool 3.6.2, pg-cursor 2.7.4, pg-query-stream 3.2.0 "
        "and @databases/pg 6.1.0"
    )

    def fetch(self, place):
        wanted = HOME / "node" / "package.json"
        there, note = fetched(place, wanted.read_text())
        if there:
            return
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copy(wanted, place)
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        processes.run(command, cwd=place)
        # Out of node_modules, where runners of tests do not look.
        for name in (*BY_MOCHA, BY_JEST):
            shutil.copytree(place / "node_modules" / name, place / "packages" / name)
        for path in NOT_LOADABLE:
            (place / "packages" / path).unlink()
        note()

    def run(self, place, run):
        env = run.endpoint.environment(database=self.database, user=self.user)
        env["DATABASE_URL"] = (
            f"postgres://{self.user}@{run.endpoint.host}:{run.endpoint.port}/{self.database}"
        )
        only = run.only
        found = self._mocha(place, run, env) if only is None or _some(only, BY_MOCHA) else {}
        if only is None or _some(only, (BY_JEST,)):
            found |= self._jest(place, run, env)
        return found if only is None else {test: found[test] for test in only if test in found}

    def _mocha(self, place, run, env):
        events = run.work / "events"
        events.touch()
        root = place / "packages"
        env = env | {"CLIENTS_EVENTS": str(events), "CLIENTS_ROOT": str(root)}
        said = ""
        for package in BY_MOCHA:
            command = [place / "node_modules" / ".bin" / "mocha", "--exit"]
            command += ["--reporter", HOME / "plugins" / "mocha_events.js"]
            command += ["--timeout", str(TEST_LIMIT_MS), "test/*.js"]
            if run.only is not None:
                titles = [test.split(": ", 1)[1] for test in run.only if test.startswith(package)]
                if not titles:
                    continue
                command += ["--grep", "|".join(f"^{re.escape(title)}$" for title in titles)]
            code, output = processes.attempt(
                command, cwd=root / package, env=env, deadline_s=run.deadline_s
            )
            said += f"{package} ended with {code}:\n{output}"
        (run.work / "said").write_text(said)
        found = read_events(events.read_text().splitlines())
        if not found:
            raise processes.Failed(f"mocha ran no test:\n{said[-3000:]}")
        return found

    def _jest(self, place, run, env):
        result = run.work / "jest.json"
        root = place / "packages" / BY_JEST
        command = [place / "node_modules" / ".bin" / "jest", "--ci", "--runInBand", "--forceExit"]
        command += ["--rootDir", root, "--testRegex", r"/__tests__/.*\.test\.pg\.js$"]
        command += ["--json", f"--outputFile={result}"]
        _, said = processes.attempt(command, cwd=root, env=env, deadline_s=run.deadline_s)
        if not result.exists():
            raise processes.Failed(f"jest left no result:\n{said[-3000:]}")
        found = {}
        for file in json.loads(result.read_text())["testResults"]:
            name = os.path.relpath(file["name"], place / "packages")
            if not file["assertionResults"]:
                found[name] = Outcome(FAILED, file["message"])
            for test in file["assertionResults"]:
                text = "\n".join(test["failureMessages"])
                result_of = _JEST_RESULTS.get(test["status"], SKIPPED)
                found[f"{name}: {test['fullName']}"] = Outcome(result_of, text)
        return found


def _some(tests, packages):
    return any(test.startswith(packages) for test in tests)
