"""A pytest plugin: writes each test's events to the file in CLIENTS_EVENTS, as they happen.

With CLIENTS_ONLY set, runs only the tests that this file names, one a line.
"""

import json
import os


def pytest_configure(config):
    plugin = Events(open(os.environ["CLIENTS_EVENTS"], "a", buffering=1))
    config.pluginmanager.register(plugin, "clients-events-writer")


def pytest_collection_modifyitems(config, items):
    path = os.environ.get("CLIENTS_ONLY")
    if not path:
        return
    with open(path) as names:
        wanted = set(names.read().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]


class Events:
    def __init__(self, file):
        self._file = file

    def _write(self, test, event, text=""):
        self._file.write(json.dumps({"test": test, "event": event, "text": text}) + "\n")

    def pytest_runtest_logstart(self, nodeid):
        self._write(nodeid, "start")

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._write(report.nodeid, "fail", report.longreprtext[-2500:])
        elif report.skipped:
            self._write(report.nodeid, "skip", str(report.longrepr)[-500:])
        elif report.when == "call":
            self._write(report.nodeid, "pass")
