"""Real Prometheus and Alertmanager beside a test's cluster, with deploy/prometheus as it is shipped.
Only addresses and times are changed: a test cannot wait for a minute."""

import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import shipped

sys.path.insert(0, str(shipped.ROOT / "tests/security"))
from real_service import until  # noqa: E402

# What a test has in the place of Grafana's $__rate_interval: at least four scrapes.
INTERVAL = "8s"


def listening_port(process):
    """The port at which this process listens, once it does."""

    def look():
        inodes = set()
        for descriptor in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(descriptor)))
            except FileNotFoundError:  # Closed meanwhile.
                continue
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                return int(fields[1].split(":")[1], 16)
        assert process.poll() is None, "it has ended"
        return None

    return until(look, "a listening port")


class Webhook:
    """Whom Alertmanager calls. Keeps every alert that it was told of."""

    def __init__(self, case):
        alerts = self.alerts = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                alerts.extend(alert | {"receiver": self.path} for alert in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        case.addCleanup(server.server_close)
        case.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{server.server_port}"

    def await_alert(self, name, status):
        return until(
            lambda: next(
                (
                    each
                    for each in self.alerts
                    if each["status"] == status and each["labels"]["alertname"] == name
                ),
                None,
            ),
            f"the alert {name}, {status}",
        )


def start(case, name, *words):
    """A watcher of the test's, with its address."""
    with open(case.directory / f"{name}.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(word) for word in words], cwd=case.directory, stdout=log, stderr=log
        )
    case.addCleanup(process.wait)
    case.addCleanup(process.terminate)
    return f"127.0.0.1:{listening_port(process)}"


def start_alertmanager(case, webhook):
    text = (shipped.ROOT / "deploy/alertmanager/alertmanager.yml").read_text()
    for long, short in (
        ("127.0.0.1:9094", webhook.address),
        ("group_wait: 30s", "group_wait: 0s"),
        ("group_interval: 5m", "group_interval: 1s"),
    ):
        assert long in text, long
        text = text.replace(long, short)
    path = case.directory / "alertmanager.yml"
    path.write_text(text)
    return start(
        case,
        "alertmanager",
        "prometheus-alertmanager",
        f"--config.file={path}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
        f"--storage.path={case.directory}/alertmanager",
    )


class Prometheus:
    """`controller` and `workers` are the addresses of pages. Where pages want certificates, these are
    already in `directory`/tls."""

    every = "1s"  # How often it reads the pages and evaluates the rules.

    def __init__(self, case, config, controller, workers, alertmanager="127.0.0.1:1"):
        self.directory = case.directory / "prometheus"
        shutil.copytree(shipped.PROMETHEUS, self.directory, dirs_exist_ok=True)
        path = self.directory / config
        text = path.read_text().replace("127.0.0.1:9093", alertmanager)
        intervals = r"((scrape|evaluation)_interval): 15s"
        path.write_text(re.sub(intervals, rf"\1: {self.every}", text))
        rules = self.directory / "rules/trainyard.alerts.yml"
        rules.write_text(re.sub(r"for: \w+", "for: 1s", rules.read_text()))
        self.set_targets("controller", [controller])
        self.set_targets("workers", workers)
        checked = subprocess.run(
            ["promtool", "check", "config", path], capture_output=True, text=True, check=False
        )
        case.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.address = start(
            case,
            "prometheus",
            "prometheus",
            f"--config.file={path}",
            "--web.listen-address=127.0.0.1:0",
            f"--storage.tsdb.path={case.directory}/tsdb",
        )
        until(self.ready, "Prometheus to be ready")

    def ready(self):
        try:
            urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=20).close()
            return True
        except urllib.error.HTTPError:
            return False

    def set_targets(self, name, addresses):
        (self.directory / f"targets/{name}.yml").write_text(json.dumps([{"targets": addresses}]))

    def get(self, path, **parameters):
        address = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def values(self, expression):
        """Those of its newest samples that are numbers."""
        result = self.get("query", query=expression)["result"]
        return [float(each["value"][1]) for each in result if each["value"][1] != "NaN"]

    def await_up(self, pages):
        until(
            lambda: self.values('count(up{job=~"trainyard-.*"} == 1)') == [pages],
            f"{pages} pages that can be read",
        )

    def await_data(self, case, expressions, variables):
        """Waits until each expression has values; else names those that have none."""
        waiting = list(expressions)
        case.assertTrue(waiting)

        def all_have():
            waiting[:] = [each for each in waiting if not self.values(each.filled(variables))]
            return not waiting

        try:
            until(all_have, "values")
        except AssertionError:
            case.fail("no values of " + "; ".join(f"{each.where}: {each.text}" for each in waiting))

    def check_labels(self, case, expressions):
        """Every label that an expression names is a label of some series."""
        known = set(self.get("labels"))
        wrong = [
            f"{each.where}: no label is called {name}"
            for each in expressions
            for name in sorted(each.labels() - known)
        ]
        case.assertEqual(wrong, [])
