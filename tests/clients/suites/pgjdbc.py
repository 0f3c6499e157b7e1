"""pgjdbc: its own tests, out of the source archive on Maven Central."""

import shutil
import tarfile
import xml.etree.ElementTree as ElementTree

from harness import processes
from harness.outcomes import FAILED, PASSED, SKIPPED, Outcome
from harness.suite import Suite, fetched

VERSION = "42.7.7"
ARTIFACT = f"org.postgresql:postgresql:{VERSION}:tar.gz:jdbc-src"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
# The archive's own surefire is older than the JUnit that it names, and runs nothing with it.
SUREFIRE = "-Dmaven-surefire-plugin.version=3.5.2"
MAVEN = ("mvn", "--batch-mode", "--no-transfer-progress", "--quiet", SUREFIRE)
NEEDS_NO_SERVER = "org/postgresql/util/PGtokenizerTest"
# Each test by itself may take so long, by JUnit's own setting.
TEST_LIMIT = "60 s"


class Pgjdbc(Suite):
    name = "pgjdbc"
    language = "Java"
    tools = ("javac", "mvn")
    package = f"pgjdbc {VERSION} (Maven Central)"
    only_by_name = "the list of its known failures is not complete yet"
    chosen = (
        "the packages `test.jdbc2`, `jdbc3`, `jdbc4` and `jdbc42`, which are about SQL and types (the "
        "others are about reading URLs, hosts and certificates), without three that take as long as all "
        "others together: `CopyLargeFileTest`, `DatabaseEncodingTest` and `StatementTest`"
    )
    classes = "org/postgresql/test/jdbc2/*Test,org/postgresql/test/jdbc3/*Test,"
    classes += "org/postgresql/test/jdbc4/*Test,org/postgresql/test/jdbc42/*Test,"
    classes += "!CopyLargeFileTest,!DatabaseEncodingTest,!StatementTest"
    database = "test"
    user = "test"
    statements = (
        "CREATE ROLE test LOGIN PASSWORD 'test'",
        "ALTER DATABASE test OWNER TO test",
        "CREATE EXTENSION hstore",
    )

    def fetch(self, place):
        there, note = fetched(place, ARTIFACT)
        if there:
            return
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        goal = [f"{PLUGIN}:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={place}"]
        processes.run([*MAVEN, *goal], cwd=place, deadline_s=300)
        (archive,) = place.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(place / "unpacked", filter="data")
        (root,) = (place / "unpacked").iterdir()
        root.rename(place / "source")
        # Compiles, and gets what the runs need: some of it only when a test runs, so one does.
        command = [*MAVEN, "test", f"-Dtest={NEEDS_NO_SERVER}"]
        processes.run(command, cwd=place / "source", deadline_s=600)
        shutil.rmtree(place / "source" / "target" / "surefire-reports")
        note()

    def run(self, place, run):
        source = run.work / "source"
        shutil.copytree(place / "source", source)
        (source / "build.local.properties").write_text(
            f"test.url.PGHOST={run.endpoint.host}\ntest.url.PGPORT={run.endpoint.port}\n"
            f"test.url.PGDBNAME={self.database}\nuser={self.user}\npassword={self.user}\n"
            "privilegedUser=postgres\nprivilegedPassword=postgres\n"
        )
        command = [*MAVEN, "surefire:test", "-Dmaven.test.failure.ignore=true"]
        command += [f"-Djunit.jupiter.execution.timeout.default={TEST_LIMIT}"]
        if run.only is not None:
            classes = {test.split(": ")[0] for test in run.only}
            command.append(f"-Dtest={','.join(sorted(name.replace('.', '/') for name in classes))}")
        elif not run.full:
            command.append(f"-Dtest={self.classes}")
        env = run.endpoint.environment(database=self.database, user=self.user)
        code, said = processes.attempt(command, cwd=source, env=env, deadline_s=run.deadline_s)
        (run.work / "said").write_text(said)
        found = {}
        for report in (source / "target" / "surefire-reports").glob("TEST-*.xml"):
            found |= read_report(report)
        if not found:
            raise processes.Failed(f"mvn ended with {code} and no report:\n{said[-3000:]}")
        return found if run.only is None else {t: found[t] for t in run.only if t in found}


def read_report(path):
    """Outcomes by `class: test`, from a report of surefire."""
    found = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        failed = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None
        result = FAILED if failed else SKIPPED if skipped else PASSED
        text = "".join(child.text or "" for child in failed)
        found[f"{case.get('classname')}: {case.get('name')}"] = Outcome(result, text[:3000])
    return found
