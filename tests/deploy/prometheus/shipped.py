"""What deploy/ ships for Prometheus and Grafana, and the names that its expressions use."""

import dataclasses
import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"

# What Prometheus itself makes.
OWN = {"up", "scrape_duration_seconds", "ALERTS"}
FUNCTIONS = set(
    """avg_over_time bool count histogram_quantile increase max max_over_time min min_over_time
    quantile quantile_over_time rate round sum time topk vector""".split()
)
WORDS = {"and", "or", "unless", "offset"}
# Clauses that hold names of labels.
CLAUSE = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"\{([^}]*)\}")


@dataclasses.dataclass(frozen=True)
class Expression:
    where: str
    text: str  # PromQL, with Grafana's variables where a panel has them.

    def metrics(self):
        text = re.sub(r'"[^"]*"', '""', self.text)
        text = SELECTOR.sub("", CLAUSE.sub("", text))
        text = re.sub(r"\[[^\]]*\]|\boffset\s+\w+", "", text)
        names = set(re.findall(r"(?<![\w.$])[A-Za-z_][\w:]*", text))
        return names - FUNCTIONS - WORDS

    def labels(self):
        text = re.sub(r'"[^"]*"', '""', self.text)
        inside = [names for _, names in CLAUSE.findall(text)] + SELECTOR.findall(text)
        return {name for each in inside for name in re.findall(r"[A-Za-z_]\w*", each)}

    def filled(self, variables):
        """PromQL, with values in the place of variables."""
        text = self.text
        for name, value in variables.items():
            text = text.replace(f"${name}", value)
        return text


def rule_files():
    return sorted((PROMETHEUS / "rules").glob("*.yml"))


def rules():
    for path in rule_files():
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def recorded():
    return {rule["record"] for rule in rules() if "record" in rule}


def rule_expressions():
    return [Expression(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()]


def dashboards():
    return [
        json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))
    ]


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def panel_expressions():
    return [
        Expression(f"{board['title']} / {panel['title']}", target["expr"])
        for board in dashboards()
        for panel in panels(board)
        for target in panel["targets"]
    ]


def variable_expressions():
    """What each query variable asks for, as an expression that groups by the label."""
    for board in dashboards():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = re.fullmatch(
                    r"label_values\((.*), (\w+)\)", variable["definition"]
                ).groups()
                yield Expression(
                    f"{board['title']} / ${variable['name']}", f"count by ({label}) ({selector})"
                )


def catalogue():
    """Every metric of docs/metrics.md; of histograms the three series that PromQL sees."""
    names = set()
    for row in (ROOT / "docs/metrics.md").read_text().splitlines():
        cells = row.split("|")
        if len(cells) < 4:
            continue
        for name in re.findall(r"`((?:trainyard|grpc_server|process)_\w+)`", cells[1]):
            histogram = cells[2].strip() == "histogram"
            names |= (
                {name + suffix for suffix in ("_bucket", "_sum", "_count")} if histogram else {name}
            )
    return names


def unknown_names(expressions):
    """Findings: what names a metric that nothing exports."""
    known = catalogue() | recorded() | OWN
    return [
        f"{each.where}: no metric is called {name}"
        for each in expressions
        for name in sorted(each.metrics() - known)
    ]
