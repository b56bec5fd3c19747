"""Panels of Grafana dashboards as Classic JSON: what all panels of the boards have in common."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "trainyard"
WIDTH = 24
# How legends name a job.
JOB = "{{job_name}} {{job_id}}"
# The first columns of tables that have them.
FIRST = ["job_name", "job_id", "model", "device_model"]
# What the JSON was written for. Grafana migrates dashboards of older schemas when it loads them.
SCHEMA = 39


def query(expr, legend="", **more):
    """A query over the dashboard's time range. `more`: fields of the target, as instant=True."""
    return {"expr": " ".join(expr.split()), "legendFormat": legend, **more}


def now(expr, legend=""):
    """A query of the newest values."""
    return query(expr, legend, instant=True, range=False)


def by_job(expr):
    """A value of each job, with the job's name: the largest of `expr`."""
    value = f"max by (job_id) ({expr})"
    return f"max by (job_id, job_name) (trainyard_job_info * on (job_id) group_left () {value})"


def panel(
    kind,
    title,
    description,
    queries,
    *,
    width=8,
    height=8,
    unit="short",
    options=None,
    custom=None,
    **defaults,
):
    """`queries`: what query() and now() return. `defaults`: more of fieldConfig.defaults."""
    fields = {"unit": unit, **defaults, **({"custom": custom} if custom else {})}
    targets = [
        {"refId": chr(ord("A") + i), "datasource": DATASOURCE, **each}
        for i, each in enumerate(queries)
    ]
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": fields, "overrides": []},
        "options": options or {},
        "gridPos": {"w": width, "h": height},
    }


def lines(title, description, *queries, stacked=False, **more):
    """Values over time."""
    custom = {
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 5,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    options = {
        "legend": {
            "displayMode": "table" if len(queries) == 1 else "list",
            "placement": "right" if more.get("width", 0) > 8 else "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull"] if len(queries) == 1 else [],
            # A long legend scrolls, so the largest values come first.
            **({"sortBy": "Last *", "sortDesc": True} if len(queries) == 1 else {}),
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel("timeseries", title, description, queries, options=options, custom=custom, **more)


def stat(title, description, expr, *, red_from=None, **more):
    """The newest value, large. From `red_from` on it is red."""
    steps = [{"color": "text", "value": None}] + (
        [{"color": "red", "value": red_from}] if red_from is not None else []
    )
    options = {
        "colorMode": "value",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return panel(
        "stat",
        title,
        description,
        [query(expr)],
        width=more.pop("width", 4),
        height=4,
        options=options,
        thresholds={"mode": "absolute", "steps": steps},
        **more,
    )


def table(title, description, columns, *, hidden=("job",), links=(), **more):
    """One row for each set of labels. `columns`: (name, unit, query of the newest values) of each
    column with values; the labels that are not `hidden` are columns, too. `links`: (label, title,
    address) for links from a cell.
    """
    made = panel(
        "table",
        title,
        description,
        [now(expr) | {"format": "table"} for _, _, expr in columns],
        width=more.pop("width", WIDTH),
        **more,
    )
    names = {
        f"Value #{target['refId']}": name for target, (name, _, _) in zip(made["targets"], columns)
    }
    if len(columns) == 1:
        names = {"Value": columns[0][0]}
    excluded = {name: True for name in ("Time", "__name__", *hidden)}
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": excluded,
                "indexByName": {name: index for index, name in enumerate(FIRST)},
                "renameByName": names,
            },
        },
    ]
    made["fieldConfig"]["overrides"] = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "unit", "value": unit}],
        }
        for name, unit, _ in columns
    ] + [
        {
            "matcher": {"id": "byName", "options": label},
            "properties": [{"id": "links", "value": [{"title": text, "url": address}]}],
        }
        for label, text, address in links
    ]
    return made


def over_tokens(title, description, expr, unit="short", **more):
    """A value of each job over the tokens that it has seen. Wants Grafana 11.1 or newer."""
    queries = [query(by_job(each)) for each in ('trainyard_tokens_seen{job_id=~"$job_id"}', expr)]
    made = panel(
        "xychart",
        title,
        description,
        [each | {"format": "table"} for each in queries],
        unit=unit,
        options={
            "mapping": "auto",
            "series": [
                {
                    "x": {"matcher": {"id": "byName", "options": "tokens"}},
                    "y": {"matcher": {"id": "byName", "options": "value"}},
                }
            ],
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "single"},
        },
        custom={"show": "lines", "lineWidth": 1},
        displayName="${__field.labels.job_name} ${__field.labels.job_id}",
        **more,
    )
    # One row for each time and job; then a frame for each job, with tokens and value.
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "renameByName": {"Value #A": "tokens", "Value #B": "value"},
            },
        },
        {"id": "sortBy", "options": {"sort": [{"field": "tokens"}]}},
        {
            "id": "partitionByValues",
            "options": {
                "fields": ["job_name", "job_id"],
                "keepFields": False,
                "naming": {"asLabels": True},
            },
        },
    ]
    return made


def variable(name, label, metric, *, many, matching=""):
    """A variable with the values of the label `name` of a metric. `many`: at first all of them."""
    selector = f"{metric}{{{matching}}}" if matching else metric
    text = f"label_values({selector}, {name})"
    current = {"current": {"selected": True, "text": ["All"], "value": ["$__all"]}} if many else {}
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": text,
        "query": {"query": text, "refId": name},
        "refresh": 2,
        "sort": 0 if name == "job_id" else 3,
        "multi": many,
        "includeAll": many,
        **({"allValue": ".*"} if many else {}),
        **current,
    }


def place(rows):
    """Places panels from left to right, and rows from top to bottom. `rows`: title -> panels."""
    placed, y = [], 0
    for title, panels in rows.items():
        placed.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }
        )
        x, y, height = 0, y + 1, 0
        for each in panels:
            position = each["gridPos"]
            if x + position["w"] > WIDTH:
                x, y, height = 0, y + height, 0
            placed.append(each | {"gridPos": {"x": x, "y": y, **position}})
            x, height = x + position["w"], max(height, position["h"])
        y += height
    return [{"id": number, **each} for number, each in enumerate(placed, 1)]


def board(uid, title, description, variables, rows):
    datasource = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "multi": False,
        "includeAll": False,
    }
    links = [
        {
            "type": "dashboards",
            "title": "Trainyard",
            "tags": [TAG],
            "asDropdown": False,
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
            "icon": "external link",
            "tooltip": "",
            "url": "",
        }
    ]
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": links,
        "templating": {"list": [datasource, *variables]},
        "panels": place(rows),
    }
