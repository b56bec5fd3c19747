"""Submits jobs and follows them while faults happen."""

import itertools
import threading
import time

PERIOD_SECONDS = 0.5
TERMINAL = {"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}


class Driver:
    """Keeps one job of each kind in the cluster until `last_call`; a thread of its own, since calls block while the
    controller is away."""

    def __init__(self, cluster, watcher, timeline, kinds):
        self.cluster, self.watcher, self.timeline = cluster, watcher, timeline
        self.submitted = {}  # id -> kind
        self.jobs = {}       # id -> job, as last seen
        self.begun = {}      # id -> when it was submitted, by the monotonic clock
        self.ended = {}      # id -> likewise
        self.numbers = itertools.count(1)
        self.kinds = kinds
        self.open = True     # Whether what ends is followed by another of its kind.
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def last_call(self):
        self.open = False

    def stop(self):
        self.stopping.set()
        self.thread.join()

    def run(self):
        while not self.stopping.wait(PERIOD_SECONDS):
            for kind in self.kinds:
                if self.open and all(job_id in self.ended for job_id, of in self.submitted.items() if of == kind):
                    self.submit(kind)
            for job_id, job in (self.cluster.jobs() or {}).items():
                self.jobs[job_id] = job
                if job["state"] in TERMINAL and job_id not in self.ended and job_id in self.submitted:
                    self.ended[job_id] = time.monotonic()
                    self.timeline.note(f"{job['spec']['name']} {job['state'].removeprefix('JOB_STATE_')} in epoch "
                                       f"{job['epoch']}, {job['restarts']} restarts {job['state_reason']}")

    def submit(self, kind):
        # A name for each try: one that was stored although its answer was lost is another job.
        name = f"{kind.name}-{next(self.numbers)}"
        directory = self.cluster.directory / "runs" / kind.disk / name
        answer = self.cluster.submit(kind, name, directory)
        if answer.code != 0:
            return
        job_id = answer.output.strip()
        self.begun[job_id] = time.monotonic()
        self.watcher.add(job_id, directory)
        self.submitted[job_id] = kind

    def all_ended(self):
        return all(job_id in self.ended for job_id in self.submitted)
