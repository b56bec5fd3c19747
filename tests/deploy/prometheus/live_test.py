"""A real cluster with TLS, in which jobs run, is watched by Prometheus and Alertmanager as deploy/
ships them. Every panel and every rule has values, and an alert comes and goes."""

import json
import ssl
import subprocess
import unittest
import urllib.request
from urllib.parse import urlsplit

import shipped
from watchers import INTERVAL, Prometheus, Webhook, start_alertmanager
from real_service import RealService, until

# A mixture of experts on 4 ranks, with everything that has a metric. It runs until the test ends.
LONG = """
name: long
model:
  architecture: {family: qwen3_moe, layers: 2, hidden: 64, heads: 4, kv_heads: 2, head_dim: 16,
                 vocab: 256, max_seq: 64,
                 moe: {experts: 8, top_k: 2, expert_ffn: 48, aux_loss: 0.01}}
precision: F32
parallelism: {tensor: 2, expert: 2}
batch: {global: 8, micro: 2, sequence: 64}
data: {synthetic: {}}
optimizer: {adamw: {learning_rate: 1.0e-3}}
steps: 1000000
validation: {every_steps: 20}
checkpoint: {directory: long, every_steps: 20}
devices: 4
"""


def page(url):
    return f"127.0.0.1:{urlsplit(url).port}"


def without_gpus(expressions):
    return [
        each
        for each in expressions
        if not any(name.startswith("trainyard_gpu_") for name in each.metrics())
    ]


class Live(RealService):
    def start_machine(self, name, devices):
        return self.start(
            name,
            "trainyard-worker",
            "--controller",
            self.address,
            "--state",
            name,
            "--devices",
            str(devices),
            "--cores",
            "1",
            "--join",
            "rack.token",
            "--metrics-listen",
            "0.0.0.0:0",
            "--detach",
            "0",
        )

    def start_cluster(self):
        self.tool("init", "--host", "127.0.0.1")
        admin = self.tool("token", "--name", "alice", "--role", "admin")
        ready = self.start_controller("--backup-directory", "backups", "--backup-every", "1s")
        self.trainyard("login", self.address, stdin=admin)
        (self.directory / "rack.token").write_text(
            self.trainyard("token", "create", "rack", "--role", "joiner", "--uses", "9")
        )
        self.tool("reader", "--name", "prometheus", "--directory", "prometheus/tls")
        pages = [ready["metrics"]]
        for name, devices in (("w1", 3), ("w2", 2)):
            pages.append(self.start_machine(name, devices)[1]["metrics"])
        self.spare, ready = self.start_machine("w3", 1)
        return [*pages, ready["metrics"]], ready["worker"]

    def read_page(self, url):
        tls = self.directory / "prometheus/tls"
        context = ssl.create_default_context(cafile=tls / "authority.pem")
        context.check_hostname = (
            False  # A worker's certificate has a name that Prometheus is told of.
        )
        context.load_cert_chain(tls / "certificate.pem", tls / "key.pem")
        with urllib.request.urlopen(
            f"https://{page(url)}/metrics", context=context, timeout=20
        ) as answer:
            return answer.read().decode()

    def check_pages(self, pages):
        for url in pages:
            done = subprocess.run(
                ["promtool", "check", "metrics"],
                input=self.read_page(url),
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""), url)

    def check_alert(self, webhook, worker):
        """A machine dies, somebody is called, and the machine comes back."""
        self.spare.kill()
        fired = webhook.await_alert("WorkerLost", "firing")
        self.assertEqual(fired["receiver"], "/on-call")  # It is critical.
        self.assertIn(worker, fired["annotations"]["description"])
        self.assertEqual(fired["annotations"]["runbook_url"], "docs/runbook.md#workerlost")
        self.start_machine("w3", 1)
        webhook.await_alert("WorkerLost", "resolved")

    def test_every_panel_and_rule_has_values_and_an_alert_comes_and_goes(self):
        pages, spare = self.start_cluster()
        webhook = Webhook(self)
        prometheus = Prometheus(
            self,
            "prometheus.yml",
            page(pages[0]),
            [page(each) for each in pages[1:]],
            start_alertmanager(self, webhook),
        )
        job = json.loads(self.trainyard("submit", "-", "-o", "jsonl", stdin=LONG))["id"]
        prometheus.await_up(4)
        for _ in range(2):  # Each waits for its placement while Prometheus looks.
            short = self.submit(20)
            until(
                lambda: self.lines("get", short)[0]["state"] == "JOB_STATE_SUCCEEDED",
                "a short job's end",
            )
        self.check_pages(pages)
        self.check_alert(webhook, spare)

        expressions = without_gpus([*shipped.panel_expressions(), *shipped.variable_expressions()])
        self.assertGreater(len(expressions), 90)
        recorded = [shipped.Expression("a recording rule", name) for name in shipped.recorded()]
        prometheus.await_data(
            self,
            [*expressions, *recorded],
            {"__rate_interval": INTERVAL, "job_id": job, "rank": ".*"},
        )
        prometheus.check_labels(self, without_gpus([*expressions, *shipped.rule_expressions()]))
        for group in prometheus.get("rules")["groups"]:
            for rule in group["rules"]:
                self.assertEqual(rule["health"], "ok", rule)
        names = set(prometheus.get("label/__name__/values"))
        for each in without_gpus(shipped.rule_expressions()):
            self.assertLessEqual(each.metrics(), names, each.where)
        self.assertEqual(self.lines("get", job)[0]["state"], "JOB_STATE_RUNNING")


class Loopback(RealService):
    def test_the_variant_without_tls_reads_all_pages_of_a_service_on_loopback(self):
        self.environment = {"HOME": str(self.directory / "home")}
        controller = self.start_controller(listen="127.0.0.1:0")
        worker = self.start(
            "w1",
            "trainyard-worker",
            "--controller",
            self.address,
            "--state",
            "w1",
            "--devices",
            "1",
            "--cores",
            "0.5",
        )[1]
        Prometheus(
            self, "prometheus-loopback.yml", page(controller["metrics"]), [page(worker["metrics"])]
        ).await_up(2)


if __name__ == "__main__":
    unittest.main()
