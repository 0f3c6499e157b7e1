"""Servers for one suite: a plain PostgreSQL, and a Tutti cluster of three nodes beside it.

Owns: data directories made from one template, starting, stopping; all have the same settings and
locale, and fsync on, so that the two differ only in the gateway. Never: knows the suites.
Start reading at `Servers`.
"""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time

from . import processes

NODES = 3
READY_LIMIT_S = 60.0
# Root may not run PostgreSQL; the first of these that exists does.
ACCOUNTS = ("postgres", "nobody")
LOCALES = ("C.UTF-8", "C")

SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = on
max_connections = 200
max_prepared_transactions = 200
wal_level = logical
lc_messages = 'C'
logging_collector = off
"""


class Programs:
    """PostgreSQL's programs, and `tutti`."""

    def __init__(self, tutti):
        self.tutti = pathlib.Path(tutti)
        if not self.tutti.is_file():
            raise processes.Failed(f"{tutti} is missing: cargo build -p tutti")
        self.postgres = _find("postgres")
        self.initdb = _find("initdb")
        self.psql = _find("psql")


def _find(name):
    versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for directory in [*os.environ.get("PATH", "").split(os.pathsep), *versions]:
        path = pathlib.Path(directory) / name
        if path.is_file():
            return path
    raise processes.Failed(f"{name} is not installed (Debian: postgresql, postgresql-client)")


class Account:
    """Who runs the servers: ourselves, or as root an account that is not."""

    def __init__(self):
        self.options = {}
        self.owner = None
        if os.geteuid() == 0:
            for name in ACCOUNTS:
                with contextlib.suppress(KeyError):
                    self.owner = pwd.getpwnam(name)
                    break
            self.options = {"user": self.owner.pw_uid, "group": self.owner.pw_gid, "extra_groups": []}

    def give(self, path):
        """Makes the account own a new directory."""
        if self.owner:
            os.chown(path, self.owner.pw_uid, self.owner.pw_gid)

    def run(self, command):
        """Runs a program as the account; it must succeed."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **self.options,
        )
        if done.returncode != 0:
            raise processes.Failed(f"{command[0]}: {done.stdout.decode('utf-8', 'replace')}")


class Template:
    """A data directory that initdb made once, to be copied for each server."""

    def __init__(self, programs, account, place):
        self.programs, self.account = programs, account
        self.path = pathlib.Path(place) / "template"
        for locale in LOCALES:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir(mode=0o700)
            account.give(self.path)
            command = [programs.initdb, "-D", self.path, "-U", "postgres", "-A", "trust"]
            command += ["-E", "UTF8", f"--locale={locale}", "--no-sync"]
            try:
                account.run(command)
                return
            except processes.Failed as failed:
                if "invalid locale" not in str(failed):
                    raise
        raise processes.Failed(f"initdb knows none of the locales {LOCALES}")

    def copy(self, to):
        """Makes a server's data directory."""
        self.account.run(["cp", "-a", self.path, to])


class Node:
    """One PostgreSQL server, running."""

    def __init__(self, template, directory, name):
        self.port = free_port()
        self.log = directory / f"{name}.log"
        data = directory / name
        template.copy(data)
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS.format(port=self.port))
        with self.log.open("w") as log:
            self.child = subprocess.Popen(
                [str(template.programs.postgres), "-D", str(data)],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **template.account.options,
            )

    def stop(self):
        # Immediate shutdown: the data is thrown away.
        processes.stop(self.child, first=signal.SIGQUIT)


class Endpoint:
    """Where a suite connects."""

    def __init__(self, label, port, programs):
        self.label, self.port, self._psql = label, port, programs.psql
        self.host = "127.0.0.1"

    def psql(self, sql, *, database="postgres", user="postgres"):
        """Runs statements, each in a transaction of its own; all must succeed."""
        command = [self._psql, "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", self.host, "-p", self.port, "-U", user, "-d", database]
        said = ""
        for statement in sql:
            said += processes.run([*command, "-c", statement], deadline_s=60)
        return said

    def environment(self, *, database, user):
        """This process's environment, with libpq's variables pointing here."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        env.update(
            PGHOST=self.host,
            PGPORT=str(self.port),
            PGUSER=user,
            PGDATABASE=database,
            PGPASSWORD="not-asked-for",
            PGSSLMODE="disable",
        )
        return env


class Servers:
    """A context: both servers, fresh; `plain` and `tutti` are their endpoints.

    Every server gets the database, which is the one that the cluster serves, and in it, directly,
    the SQL `statements`: what must exist before a client connects.
    """

    def __init__(
        self, programs, template, directory, *, database, statements=(), default_distribution="home"
    ):
        self._default_distribution = default_distribution
        self._programs, self._template = programs, template
        self._directory = pathlib.Path(directory)
        self._database, self._statements = database, statements
        self._stack = contextlib.ExitStack()
        self.plain = self.tutti = self.log = None

    def __enter__(self):
        with self._stack:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._template.account.give(self._directory)
            names = ["plain", *(f"node{n}" for n in range(1, NODES + 1))]
            nodes = [self._start(name) for name in names]
            for node in nodes:
                self._prepare(node)
            self.plain = Endpoint("PostgreSQL", nodes[0].port, self._programs)
            self.tutti = self._start_gateway([node.port for node in nodes[1:]])
            # Whatever failed before this line is cleaned up by the `with` above.
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exception):
        self._stack.close()

    def _start(self, name):
        node = Node(self._template, self._directory, name)
        self._stack.callback(node.stop)
        return node

    def _prepare(self, node):
        endpoint = Endpoint("node", node.port, self._programs)
        wait_until(lambda: endpoint.psql(["SELECT 1"]), node.child, node.log)
        if self._database != "postgres":
            endpoint.psql([f'CREATE DATABASE "{self._database}"'])
        endpoint.psql(self._statements, database=self._database)

    def _start_gateway(self, ports):
        port = free_port()
        config = self._directory / "tutti.toml"
        config.write_text(
            f'listen = "127.0.0.1:{port}"\ndatabase = "{self._database}"\ncluster = "clients"\n'
            f'default_distribution = "{self._default_distribution}"\n'
            # As the plain server does by initdb's --auth=trust.
            '[[rules]]\naddress = "loopback"\nmethod = "trust"\n'
            + "".join(
                f'[[node]]\nid = {n}\nhost = "127.0.0.1"\nport = {node}\nuser = "postgres"\n'
                for n, node in enumerate(ports, 1)
            )
        )
        processes.run([self._programs.tutti, "init", "--config", config], deadline_s=60)
        self.log = self._directory / "gateway.log"
        with self.log.open("w") as log:
            child = subprocess.Popen(
                [str(self._programs.tutti), "serve", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._stack.callback(processes.stop, child)
        endpoint = Endpoint("Tutti", port, self._programs)
        wait_until(lambda: endpoint.psql(["SELECT 1"], database=self._database), child, self.log)
        return endpoint


def free_port():
    """A port that is free now. Another process may take it first; then a start fails and says so."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(works, child, log):
    """Waits until `works` does not raise `Failed`; gives up when the child has ended."""
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        try:
            works()
            return
        except processes.Failed as failed:
            if child.poll() is not None or time.monotonic() > deadline:
                said = pathlib.Path(log).read_text(errors="replace")
                raise processes.Failed(f"a server does not start: {failed}\n{said}") from failed
        time.sleep(0.1)
