#!/usr/bin/env python3
"""Writes the dashboards into dashboards/, beside this file, as Classic JSON.

  deploy/grafana/generate.py [DIRECTORY]      DIRECTORY: where to write them instead

To change a dashboard, change boards_*.py, run this program, and commit what it writes.
"""

import json
import pathlib
import sys

import boards_cluster
import boards_job

BOARDS = [
    boards_cluster.cluster(),
    boards_job.job(),
    boards_job.compare(),
    boards_cluster.controller(),
]


def main():
    here = pathlib.Path(__file__).resolve().parent
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "dashboards"
    directory.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (directory / f"{board['uid']}.json").write_text(
            json.dumps(board, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
