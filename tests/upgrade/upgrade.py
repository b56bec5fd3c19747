"""Two releases that are one apart, together: every mixture of controller, worker and command line, upgrades under a job, and
ways back. scripts/upgrade.sh builds the older release and runs this.

    upgrade.py --old DIRECTORY --new DIRECTORY [--only WORD]

Each directory is a source tree with a build in build/. Prints a line for each mixture; exit code 1 if one was wrong."""

import argparse
import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "chaos"))

import isolation
import mixtures
import upgrades
from service import Release, Service

PROGRAMS = ["trainyard", "trainyard-controller", "trainyard-worker", "trainyard-trainer"]


def release(name, tree: pathlib.Path):
    programs = tree / "build/bin"
    if missing := [program for program in PROGRAMS if not (programs / program).exists()]:
        sys.exit(f"upgrade: wanted {', '.join(missing)} in {programs}, which is not there; scripts/upgrade.sh builds all of them")
    return Release(name, programs, tree / "recipes")


def all_scenarios(old, new):
    """Title -> function of a service."""
    found = {}
    for controller, worker in itertools.product((old, new), repeat=2):
        found[f"controller {controller}, worker {worker}"] = (
            lambda service, c=controller, w=worker: mixtures.mixture(service, c, w, old, new))
    found["upgrade, controller first"] = lambda service: upgrades.rolling(service, old, new)
    found["upgrade, worker first"] = lambda service: upgrades.worker_first(service, old, new)
    found["upgrade undone"] = lambda service: upgrades.way_back(service, old, new)
    found["job of old in new"] = lambda service: upgrades.stored(service, old, new)
    found["checkpoint of old in new"] = lambda service: upgrades.resume(service, old, new)
    found["checkpoint of new in old"] = lambda service: upgrades.resume(service, new, old)
    found["downgrade"] = lambda service: upgrades.downgrade(service, old, new)
    return found


def run(title, scenario, corpus, tls):
    """Whether all of it held. The directory stays for a look where it did not."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-upgrade-"))
    service = Service(directory, corpus, tls)
    problems = []
    begin = time.monotonic()
    try:
        for shown in scenario(service):
            print(f"{title}: {shown}: passed ({time.monotonic() - begin:.1f} s)", flush=True)
            begin = time.monotonic()
    except (AssertionError, subprocess.TimeoutExpired, OSError) as failure:
        problems.append(str(failure))
    problems += service.end()
    if problems:
        print(f"{title}: FAILED: {'; '.join(problems)}; kept for a look: {directory}", flush=True)
        return False
    shutil.rmtree(directory)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=pathlib.Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--new", type=pathlib.Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--only", default="", metavar="WORD", help="only what has this in its title")
    options = parser.parse_args()
    old, new = release("old", options.old.resolve()), release("new", options.new.resolve())
    isolation.enter()
    for each in (old, new):
        version = subprocess.run([each.programs / "trainyard", "--version"], check=True, capture_output=True, text=True).stdout
        print(f"{each}: {version.strip()}", flush=True)
    passed = {}
    corpus = (options.new / "LICENSE").read_bytes() * 4
    for tls, (title, scenario) in itertools.product((False, True), all_scenarios(old, new).items()):
        title += ", TLS" if tls else ", loopback"
        if options.only in title:
            passed[title] = run(title, scenario, corpus, tls)
    failed = [title for title, held in passed.items() if not held]
    print(f"{len(passed) - len(failed)} of {len(passed)} passed")
    if failed or not passed:
        sys.exit("upgrade: wrong: " + (", ".join(failed) or f"nothing has {options.only!r} in its title"))


if __name__ == "__main__":
    main()
