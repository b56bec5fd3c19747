"""GPUs, which a fake NVML describes, are watched: every panel about them has values, and alerts about
them come and go."""

import json
import os
import pathlib
import unittest
from urllib.parse import urlsplit

import shipped
from watchers import INTERVAL, Prometheus, Webhook, start_alertmanager
from real_service import BIN, SPEC, RealService

THERMAL = 0x40  # NVML's bit for hw_thermal_slowdown.


def gpu(index):
    return {
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index}a56a4bc-e184-a047-2620-be19fdf913d5",
        "capability": [9, 0],
        "memory_total": 85_520_809_984,
        "memory_reserved": 520_809_984,
        "memory_used": 1_000_000_000,
        "utilization": 97,
        "power": 612_500,
        "sm_clock": 1755,
        "temperature": 61,
        "clock_event_reasons": 4,
    }


def page(url):
    return f"127.0.0.1:{urlsplit(url).port}"


class LiveGpus(RealService):
    def play(self, machine):
        path = pathlib.Path(self.environment["FAKE_NVML"])
        path.with_suffix(".new").write_text(json.dumps(machine))
        path.with_suffix(".new").rename(path)

    def test_every_panel_about_gpus_has_values_and_alerts_about_them_come_and_go(self):
        self.environment = {
            "HOME": str(self.directory / "home"),
            "FAKE_NVML": str(self.directory / "nvml.json"),
            "LD_LIBRARY_PATH": (
                f"{BIN.parent / 'tests/fake_nvml'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
            ),
        }
        machine = {"driver": "580.65.06", "cuda": 13000, "gpus": [gpu(0), gpu(1)], "xids": []}
        self.play(machine)
        controller = self.start_controller(listen="127.0.0.1:0")["metrics"]
        worker = self.start(
            "gpus",
            "trainyard-worker",
            "--controller",
            self.address,
            "--state",
            "gpus",
            "--devices",
            "cuda",
            "--cores",
            "1",
        )[1]
        webhook = Webhook(self)
        prometheus = Prometheus(
            self,
            "prometheus-loopback.yml",
            page(controller),
            [page(worker["metrics"])],
            start_alertmanager(self, webhook),
        )
        prometheus.await_up(2)
        # There is no GPU, so the rank fails. The worker still says which rank was on which GPU.
        job = json.loads(
            self.trainyard("submit", "-", "-o", "jsonl", stdin=SPEC.replace("STEPS", "10"))
        )["id"]

        machine["gpus"][0]["clock_event_reasons"] = THERMAL
        machine["xids"].append({"gpu": 1, "xid": 79})
        self.play(machine)
        hot, broken = (
            webhook.await_alert(name, "firing") for name in ("GpuThermalThrottling", "GpuXid")
        )
        self.assertEqual((hot["labels"]["gpu"], hot["receiver"]), ("0", "/tickets"))
        self.assertEqual(
            (broken["labels"]["gpu"], broken["labels"]["xid"], broken["receiver"]),
            ("1", "79", "/on-call"),
        )

        expressions = [
            each
            for each in [*shipped.panel_expressions(), *shipped.rule_expressions()]
            if any(name.startswith("trainyard_gpu_") for name in each.metrics())
        ]
        self.assertGreater(len(expressions), 10)
        prometheus.await_data(
            self, expressions, {"__rate_interval": INTERVAL, "job_id": job, "rank": ".*"}
        )
        prometheus.check_labels(self, expressions)
        machine["gpus"][0]["clock_event_reasons"] = 0
        self.play(machine)
        webhook.await_alert(
            "GpuThermalThrottling", "resolved"
        )  # Once most of the readings are cool.


if __name__ == "__main__":
    unittest.main()
