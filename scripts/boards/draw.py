"""Draws dashboards of Grafana as pages of HTML, where no Grafana is at hand: each panel at its
place, with what Prometheus answers to its queries. Knows the kinds of panels, the units and the
transformations that deploy/grafana uses, and no others. scripts/boards.py calls page()."""

import json
import math
import pathlib
import re
import urllib.parse
import urllib.request
from datetime import datetime, timezone
from html import escape

STYLE = pathlib.Path(__file__).with_name("board.css").read_text(encoding="utf-8")
# Grafana's classic palette.
COLORS = """#73bf69 #f2cc0c #8ab8ff #ff780a #f2495c #5794f2 #b877d9 #37872d #fade2a #c4162a #96d98d
    #ffb357 #3274d9 #ca95e5 #e0b400""".split()
SHORT, SI = ["", " K", " Mil", " Bil", " Tri"], [" ", " k", " M", " G", " T", " P"]
UNITS = {  # The factor between prefixes, and what is written behind a value with each prefix.
    "short": (1000, SHORT),
    "reqps": (1000, [prefix + " req/s" for prefix in SHORT]),
    "cps": (1000, [prefix + " c/s" for prefix in SHORT]),
    "bytes": (1024, [" B", " KiB", " MiB", " GiB", " TiB"]),
    "Bps": (1000, [prefix + "B/s" for prefix in SI]),
    "flops": (1000, [prefix + "FLOPS" for prefix in SI]),
    "watt": (1000, [prefix + "W" for prefix in SI]),
    "hertz": (1000, [prefix + "Hz" for prefix in SI]),
}
# Up to which seconds there is a smaller unit, and by what to divide.
TIMES = [(1e-3, 1e-6, " µs"), (1, 1e-3, " ms"), (60, 1, " s"), (3600, 60, " mins"),
         (86400, 3600, " hours"), (604800, 86400, " days"), (math.inf, 604800, " weeks")]
NO_DATA = '<p class="none">No data</p>'


def scale(value, unit):
    """By what to divide a value of that size, and what to write behind it."""
    size = abs(value)
    if unit == "s":
        return next(how for bound, *how in TIMES if size < bound) if size else [1, " s"]
    if unit in UNITS:
        factor, names = UNITS[unit]
        power = min(len(names) - 1, int(math.log(size, factor) + 1e-9)) if size >= factor else 0
        return [factor**power, names[power]]
    return {"percentunit": [0.01, "%"], "celsius": [1, " °C"]}.get(unit, [1, ""])


def written(value, unit, decimals=None):
    """As Grafana writes it: with three significant digits, or so many decimals."""
    if unit == "sci":
        return re.sub(r"e([+-])0", r"e\1", f"{value:.2e}")
    factor, name = scale(value, unit)
    value /= factor
    if decimals is None:
        whole = abs(value - round(value)) < 1e-9
        decimals = 0 if whole else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}{name}"


def clock(time):
    return datetime.fromtimestamp(time, timezone.utc).strftime("%H:%M")


class Source:
    """What Prometheus answers about the time from `begin` to `end`. `scrape`: its scrape_interval
    in seconds, of which Grafana makes the distance of points and $__rate_interval."""

    def __init__(self, address, begin, end, scrape):
        self.address, self.begin, self.end = address, begin, end
        self.step = max(scrape, (end - begin) // 400)
        self.variables = {"__rate_interval": f"{max(self.step + scrape, 4 * scrape)}s"}

    def _get(self, path, expr, **times):
        for name, value in self.variables.items():
            expr = expr.replace(f"${name}", value)
        words = urllib.parse.urlencode({"query": expr, **times})
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{words}") as answer:
            return json.load(answer)["data"]["result"]

    def series(self, target):
        """Labels and points of each series. What is not finite is no point."""
        times = {"start": self.begin, "end": self.end, "step": self.step}
        for each in self._get("query_range", target["expr"], **times):
            points = [(t, float(v)) for t, v in each["values"]]
            yield each["metric"], [(t, v) for t, v in points if math.isfinite(v)]

    def now(self, target):
        found = self._get("query", target["expr"], time=self.end)
        return [(each["metric"], float(each["value"][1])) for each in found]


def ticks(low, high, most, unit=""):
    """Round values within the range."""
    if unit in ("bytes", "s"):  # Round in the unit that is written.
        factor = scale(high, unit)[0]
        return [each * factor for each in ticks(low / factor, high / factor, most)]
    power = 10 ** math.floor(math.log10((high - low) / most))
    step = next(n * power for n in (1, 2, 2.5, 5, 10) if n * power * most >= 0.999 * (high - low))
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def extent(values, defaults, stacked=False):
    """The range of an axis, as Grafana chooses it: a tenth more, and not beyond 0."""
    low, high = min(values, default=0), max(values, default=0)
    pad = 0.1 * (high - low) or abs(high) or 1
    bottom = 0 if stacked or low >= 0 > low - pad else low - pad
    return defaults.get("min", bottom), defaults.get("max", high + pad)


def curve(points, place, gap, base=None):
    """The path through the points, broken where some are missing. With `base`, the lower edge at
    each x, the path around the area."""
    runs = []
    for x, y in points:
        if not runs or x - runs[-1][-1][0] > gap:
            runs.append([])
        runs[-1].append((x, y))
    path = ""
    for run in runs:
        corners = run + [(x, base(x)) for x, _ in reversed(run)] if base else run
        path += "M" + "L".join("{:.1f} {:.1f}".format(*place(*corner)) for corner in corners)
    return path


def svg(paths):
    drawn = "".join(f'<path d="{path}" {style}/>' for path, style in paths)
    return f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none">{drawn}</svg>'


def chart(panel, series, x_range, x_ticks, gap=math.inf):
    """`series`: names and points. `x_ticks`: values and texts."""
    if not series:
        return NO_DATA
    defaults = panel["fieldConfig"]["defaults"]
    custom, unit = defaults["custom"], defaults["unit"]
    stacked, below, layers = custom.get("stacking", {}).get("mode") == "normal", {}, []
    for _, points in series:
        base = dict(below)
        if stacked:
            points = [(x, y + base.get(x, 0)) for x, y in points]
            below.update(points)
        layers.append((points, base))
    low, high = extent([y for points, _ in layers for _, y in points], defaults, stacked)

    def place(x, y):
        return [1000 * (x - x_range[0]) / (x_range[1] - x_range[0]),
                1000 * (high - y) / (high - low)]

    marks = ticks(low, high, 5, unit)
    step = (marks[1] - marks[0]) / scale(marks[-1], unit)[0]
    decimals = next(d for d in range(9) if abs(step - round(step, d)) < 1e-6 * step)
    texts = [written(mark, unit, decimals if scale(mark, unit) == scale(marks[-1], unit) else None)
             for mark in marks]
    paths = [(f"M0 {place(0, mark)[1]:.1f}H1000", 'stroke="#ffffff14"') for mark in marks]
    paths += [(f"M{place(x, 0)[0]:.1f} 0V1000", 'stroke="#ffffff14"') for x, _ in x_ticks]
    for color, (points, base) in zip(COLORS * 9, layers):
        area = curve(points, place, gap, lambda x, base=base: base.get(x, max(low, 0)))
        paths.append((area, f'fill="{color}" fill-opacity="{custom.get("fillOpacity", 0)}%"'))
        paths.append((curve(points, place, gap), f'fill="none" stroke="{color}"'))
    y = "".join(f'<i style="top:{place(0, m)[1] / 10}%">{t}</i>' for m, t in zip(marks, texts))
    x = "".join(f'<i style="left:{place(m, 0)[0] / 10}%">{t}</i>' for m, t in x_ticks)
    return (f'<div class="chart {panel["options"]["legend"]["placement"]}"><div class="plot">'
            f'<div class="y" style="width:{10 + 6 * max(map(len, texts))}px">{y}</div>'
            f'<div class="x">{svg(paths)}{x}</div></div>{legend(panel, series)}</div>')


def legend(panel, series):
    options, unit = panel["options"]["legend"], panel["fieldConfig"]["defaults"]["unit"]
    entries = [(points[-1][1] if points else -math.inf, name, color)
               for color, (name, points) in zip(COLORS * 9, series)]
    in_table, rows = options["displayMode"] == "table", ""
    if in_table:
        entries.sort(key=lambda entry: -entry[0])
        rows = '<div class="head">Name<em>Last *</em></div>'
    for last, name, color in entries:
        value = f"<em>{written(last, unit)}</em>" if in_table and last > -math.inf else ""
        rows += f'<div><u style="background:{color}"></u>{escape(name)}{value}</div>'
    return f'<div class="legend {options["displayMode"]}">{rows}</div>'


def timeseries(panel, source):
    series = []
    for target in panel["targets"]:
        for labels, points in source.series(target):
            name = re.sub(r"{{(\w+)}}", lambda m: labels.get(m[1], ""), target["legendFormat"])
            series.append((name, points))
    length = source.end - source.begin
    step = next(s for s in (60, 120, 300, 600, 1800, 3600, 21600) if length <= 6 * s)
    times = range(-(-source.begin // step) * step, int(source.end - 0.03 * length), step)
    x_ticks = [(time, clock(time)) for time in times]
    return chart(panel, series, (source.begin, source.end), x_ticks, 1.5 * source.step)


def xychart(panel, source):
    xs, ys = ({f"{labels['job_name']} {labels['job_id']}": dict(points)
               for labels, points in source.series(target)} for target in panel["targets"])
    series = [(job, sorted((xs[job][t], y) for t, y in ys[job].items() if t in xs.get(job, {})))
              for job in ys]
    most = max((x for _, points in series for x, _ in points), default=1)
    x_ticks = [(x, written(x, "short")) for x in ticks(0, 0.97 * most, 8)]
    return chart(panel, series, (0, most), x_ticks)


def stat(panel, source):
    defaults = panel["fieldConfig"]["defaults"]
    points = next((points for _, points in source.series(panel["targets"][0]) if points), None)
    if points is None:
        return NO_DATA
    low, high = extent([y for _, y in points], {})

    def place(x, y):
        length = source.end - source.begin
        return 1000 * (x - source.begin) / length, 1000 * (high - y) / (high - low)

    value = points[-1][1]
    color = [each["color"] for each in defaults["thresholds"]["steps"]
             if each["value"] is None or value >= each["value"]][-1]
    area = svg([(curve(points, place, math.inf, lambda _: low), 'fill-opacity="12%"')])
    text = written(value, defaults["unit"], defaults.get("decimals"))
    return f'<div class="spark {color}">{area}</div><p class="stat {color}">{text}</p>'


def table(panel, source):
    organize = panel["transformations"][1]["options"]
    properties = {each["matcher"]["options"]: {p["id"]: p["value"] for p in each["properties"]}
                  for each in panel["fieldConfig"]["overrides"]}
    rows, labels, values = {}, set(), []
    for target in panel["targets"]:
        values.append(f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value")
        for metric, value in source.now(target):
            labels |= set(metric)
            rows.setdefault(str(sorted(metric.items())), dict(metric))[values[-1]] = value
    if not rows:
        return NO_DATA
    place, hidden = organize["indexByName"], organize["excludeByName"]
    columns = sorted(labels, key=lambda name: (place.get(name, math.inf), name)) + values
    columns = [name for name in columns if name not in hidden]

    def cells(row):
        for name in columns:
            value = row.get(name, "")
            more = properties.get(organize["renameByName"].get(name, name), {})
            if isinstance(value, float):
                yield f'<td class="number">{written(value, more["unit"])}</td>'
            else:
                yield f'<td class="{"link" if "links" in more else ""}">{escape(value)}</td>'

    head = "".join(f'<th class="{"number" if name in values else ""}">'
                   f'{organize["renameByName"].get(name, name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(cells(row))}</tr>" for row in rows.values())
    return f"<table><tr>{head}</tr>{body}</table>"


KINDS = {"timeseries": timeseries, "xychart": xychart, "stat": stat, "table": table}


def page(board, source, shown):
    """`shown`: what the box of each variable says."""
    boxes = [f"{each['label']}: {escape(shown[each['name']])}"
             for each in board["templating"]["list"] if each["name"] in shown]
    boxes.append(f"{clock(source.begin)} to {clock(source.end)} UTC")
    panels = ""
    for panel in board["panels"]:
        at, title = panel["gridPos"], panel["title"]
        style = f"grid-area:{at['y'] + 1}/{at['x'] + 1}/span {at['h']}/span {at['w']}"
        if panel["type"] == "row":
            panels += f'<h2 style="{style}">⌄ {title}</h2>'
        else:
            drawn = KINDS[panel["type"]](panel, source)
            panels += f'<section style="{style}"><h3>{title}</h3>{drawn}</section>'
    top = "".join(f"<span>{box}</span>" for box in boxes)
    return (f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>'
            f"<header><b>{board['title']}</b>{top}</header><main>{panels}</main>\n")
