"""Rules, alerts and dashboards as files: promtool accepts them, and no metric is misspelt."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as sdk

import shipped

sys.path.insert(0, str(shipped.ROOT / "scripts/boards"))
import draw  # noqa: E402

SEVERITIES = {"critical", "warning"}
UNITS = {
    "short",
    "s",
    "percentunit",
    "bytes",
    "Bps",
    "flops",
    "sci",
    "watt",
    "celsius",
    "hertz",
    "reqps",
    "cps",
}


def run(*words):
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, timeout=60
    )


class Rules(unittest.TestCase):
    def accepted(self, *words):
        done = run(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_promtool_accepts_the_rules_and_their_tests(self):
        self.accepted("promtool", "check", "rules", *shipped.rule_files())
        self.accepted(
            "promtool", "test", "rules", *sorted((shipped.PROMETHEUS / "tests").glob("*.yml"))
        )

    def test_amtool_accepts_the_example(self):
        self.accepted(
            "amtool", "check-config", shipped.ROOT / "deploy/alertmanager/alertmanager.yml"
        )

    def test_recording_rules_are_named_level_metric_operations(self):
        for name in shipped.recorded():
            self.assertRegex(name, r"^[a-z_]+:[a-z_]+:[a-z0-9_]+$")

    def test_every_alert_says_what_it_means_and_has_a_runbook(self):
        sections = re.findall(r"^## (\w+)$", (shipped.ROOT / "docs/runbook.md").read_text(), re.M)
        for alert in shipped.alerts():
            name = alert["alert"]
            with self.subTest(name):
                self.assertRegex(alert["for"], r"^\d+[mh]$")
                self.assertIn(alert["labels"]["severity"], SEVERITIES)
                self.assertEqual(
                    set(alert["annotations"]), {"summary", "description", "runbook_url"}
                )
                self.assertEqual(
                    alert["annotations"]["runbook_url"], f"docs/runbook.md#{name.lower()}"
                )
                self.assertIn(name, sections)
        self.assertEqual(sorted(sections), sorted(alert["alert"] for alert in shipped.alerts()))

    def test_every_section_of_the_runbook_is_complete(self):
        text = (shipped.ROOT / "docs/runbook.md").read_text()
        for section in text.split("\n## ")[1:]:
            for part in ("**Meaning.**", "**Look at**", "**Do.**"):
                self.assertIn(part, section, section.splitlines()[0])
        anchors = {name.lower() for name in re.findall(r"^## (\w+)$", text, re.M)}
        self.assertLessEqual(set(re.findall(r"\(#(\w+)\)", text)), anchors)

    def test_every_alert_fires_and_clears_in_a_test(self):
        done = set()
        for path in (shipped.PROMETHEUS / "tests").glob("*.yml"):
            for test in yaml.safe_load(path.read_text())["tests"]:
                fires = set()
                for look in test["promql_expr_test"]:  # In the order of time.
                    firing = set(re.findall(r'alertname="(\w+)"', str(look.get("exp_samples", ""))))
                    done |= fires - firing
                    fires |= firing
        self.assertEqual(done, {alert["alert"] for alert in shipped.alerts()})


class Names(unittest.TestCase):
    def test_every_metric_exists(self):
        expressions = [
            *shipped.rule_expressions(),
            *shipped.panel_expressions(),
            *shipped.variable_expressions(),
        ]
        self.assertGreater(len(expressions), 100)
        self.assertEqual(shipped.unknown_names(expressions), [])

    def test_a_misspelt_metric_is_found(self):
        for wrong in (
            "trainyard_los",
            "trainyrad_loss",
            "job:trainyard_mfu:ratio",
            "trainyard_queue_wait_seconds",
            "rat(up[5m])",
        ):
            found = shipped.unknown_names(
                [
                    shipped.Expression(
                        "a panel",
                        f'sum by (job_id) ({wrong}{{job_id="$job_id"}})'.replace(
                            "rat(up[5m]){", "rat(up{"
                        ),
                    )
                ]
            )
            self.assertEqual(len(found), 1, wrong)


class Dashboards(unittest.TestCase):
    def test_the_generator_writes_what_is_checked_in(self):
        with tempfile.TemporaryDirectory() as directory:
            done = run(sys.executable, shipped.GRAFANA / "generate.py", directory)
            self.assertEqual(done.returncode, 0, done.stderr)
            made = {path.name: path.read_text() for path in pathlib.Path(directory).iterdir()}
        kept = {path.name: path.read_text() for path in (shipped.GRAFANA / "dashboards").iterdir()}
        self.assertEqual(made, kept, "run deploy/grafana/generate.py and commit what it writes")

    def test_there_are_four_which_grafana_can_import_anywhere(self):
        boards = shipped.dashboards()
        self.assertEqual(
            [board["uid"] for board in boards],
            ["trainyard-cluster", "trainyard-compare", "trainyard-controller", "trainyard-job"],
        )
        for board in boards:
            self.assertIsNone(board["id"])
            self.assertEqual(
                board["links"][0]["tags"], board["tags"]
            )  # Each board links to all others.
            variables = [each["name"] for each in board["templating"]["list"]]
            self.assertEqual(variables[0], "datasource")
            used = set(re.findall(r"\$\{?(\w+)", str(board["panels"]))) - {
                "__rate_interval",
                "__url_time_range",
                "__value",
                "__field",
            }
            self.assertLessEqual(used, set(variables))

    def test_every_panel_has_a_description_a_unit_and_the_chosen_data_source(self):
        chosen = {"type": "prometheus", "uid": "${datasource}"}
        for board in shipped.dashboards():
            numbers = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(numbers), len(set(numbers)))
            for panel in shipped.panels(board):
                with self.subTest(f"{board['title']} / {panel['title']}"):
                    self.assertTrue(panel["description"].endswith("."))
                    self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS)
                    for source in [
                        panel["datasource"],
                        *(target["datasource"] for target in panel["targets"]),
                    ]:
                        self.assertEqual(source, chosen)
            for variable in board["templating"]["list"][1:]:
                self.assertEqual(variable["datasource"], chosen)

    def test_panels_do_not_overlap(self):
        for board in shipped.dashboards():
            taken = set()
            for panel in board["panels"]:
                at = panel["gridPos"]
                cells = {
                    (x, y)
                    for x in range(at["x"], at["x"] + at["w"])
                    for y in range(at["y"], at["y"] + at["h"])
                }
                self.assertLessEqual(at["x"] + at["w"], 24)
                self.assertFalse(cells & taken, panel["title"])
                taken |= cells

    def test_grafanas_own_types_read_them(self):
        register_default_plugins()
        for board in shipped.dashboards():
            read = sdk.Dashboard.from_json(board)
            self.assertEqual(read.uid, board["uid"])
            self.assertEqual(
                [panel.title for panel in read.panels],
                [panel["title"] for panel in board["panels"]],
            )
            for panel, written in zip(read.panels, board["panels"]):
                if written["type"] != "row":
                    self.assertEqual(
                        [target.expr for target in panel.targets],
                        [target["expr"] for target in written["targets"]],
                    )
                    self.assertEqual(panel.grid_pos.w, written["gridPos"]["w"])


class Drawing(unittest.TestCase):
    def test_every_panel_of_every_board_can_be_drawn(self):
        labels = {"job_id": "j-1", "job_name": "one"}
        source = draw.Source("no address", 0, 600, 15)
        source.series = lambda _: [(labels, [(0, 1.0), (15, 2.0), (300, 0.5)])]
        source.now = lambda _: [(labels, 1.0)]
        for board in shipped.dashboards():
            page = draw.page(board, source, {"job_id": "j-1", "rank": "All"})
            for panel in board["panels"]:
                self.assertIn(panel["title"], page)
            self.assertNotIn("No data", page)

    def test_values_are_written_as_grafana_writes_them(self):
        for value, unit, text in (
            (0, "s", "0 s"),
            (0.0123, "s", "12.3 ms"),
            (5400, "s", "1.50 hours"),
            (1536, "bytes", "1.50 KiB"),
            (2.5e12, "flops", "2.50 TFLOPS"),
            (1234, "short", "1.23 K"),
            (0.5, "percentunit", "50%"),
            (3e-4, "sci", "3.00e-4"),
        ):
            self.assertEqual(draw.written(value, unit), text)


if __name__ == "__main__":
    unittest.main()
