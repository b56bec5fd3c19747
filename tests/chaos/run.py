"""One test run: a cluster, the jobs on it, what was done to them, and what is wrong with the result."""

import pathlib
import tempfile
import time

import checks
import driver
from cluster import CALL_PERIOD, MOUNTED, Cluster, wait_until
from timeline import Timeline
from watcher import Watcher


class Run:
    def __init__(self, binaries: pathlib.Path, workers, store_megabytes=MOUNTED["controller"]):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-chaos-"))
        self.timeline = Timeline()
        self.cluster = Cluster(self.directory, binaries, workers, store_megabytes)
        self.watcher = Watcher(self.cluster.trainers)
        self.submitted = {}  # id -> kind
        self.problems = []

    # Of scripted runs.

    def submit(self, kind, name="disturbed"):
        """`name` is that of the job and, below runs, of its checkpoint directory's last part."""
        directory = self.directory / "runs" / kind.disk / name
        answer = self.cluster.submit(kind, name, directory)
        assert answer.code == 0, answer
        job_id = answer.output.strip()
        self.submitted[job_id] = kind
        self.watcher.add(job_id, directory)
        return job_id

    def job(self, job_id):
        """As the controller knows it, which may be away for a moment."""
        return wait_until(lambda: (self.cluster.jobs() or {}).get(job_id), 30, f"an answer about {job_id}",
                          CALL_PERIOD)

    def wait_for_recorded(self, job_id, count):
        """Until the controller knows so many checkpoints; the newest's step."""
        listed = lambda: [c["step"] for c in self.job(job_id)["checkpoints"]]
        wait_until(lambda: len(listed()) >= count, 60, f"{count} recorded checkpoints", CALL_PERIOD)
        return listed()[-1]

    def wait_for_commit(self, job_id, step):
        """Until the directory has a checkpoint of at least that step."""
        wait_until(lambda: self.watcher.newest_commit(job_id)[1] >= step, 60, f"a checkpoint of step {step}")

    def wait_for_end(self, job_id, seconds=120):
        ended = lambda: job if (job := self.job(job_id))["state"] in driver.TERMINAL else None
        return wait_until(ended, seconds, f"the end of {job_id}", CALL_PERIOD)

    # Of random ones.

    def drive(self, kinds):
        self.driver = driver.Driver(self.cluster, self.watcher, self.timeline, kinds)
        return self.driver

    def stop_driving(self):
        self.driver.stop()
        self.submitted = self.driver.submitted

    # Of all.

    def wait(self, seconds):
        time.sleep(seconds)

    def check(self, peace, all_ended=True):
        """The problems of all submitted jobs, and of the processes; ends the cluster. `peace`: kind -> Undisturbed."""
        problems = self.problems
        problems += self.cluster.surprises()
        problems += checks.of_processes(self.cluster) if all_ended else []
        self.watcher.stop()
        try:
            self.check_jobs(peace)
        except AssertionError as failure:
            problems.append(str(failure))
        return problems + self.cluster.end()

    def check_jobs(self, peace):
        jobs = wait_until(self.cluster.jobs, 30, "the list of jobs")
        self.problems += checks.of_the_list(self.submitted, jobs)
        for job_id, kind in self.submitted.items():
            if job_id not in jobs:
                continue
            found = checks.of_job(self.cluster, self.watcher, jobs[job_id], kind, peace[kind])
            self.problems += found
            if found:
                events = self.directory / f"events-{job_id}.txt"
                events.write_text(self.cluster.trainyard("events", job_id).output)

    def tell(self, problems):
        """Prints the verdict; the directory stays for a look where there is one against the run."""
        if not problems:
            self.cluster.remove()
            print("passed", flush=True)
            return True
        print(f"FAILED: {len(problems)} problems", flush=True)
        for problem in problems:
            print(f"  {problem}")
        for events in sorted(self.directory.glob("events-*.txt")):
            lines = [line for line in events.read_text().splitlines() if "CHECKPOINTED" not in line]
            print(f"  {events.name}, without checkpoints, ends with:")
            print("\n".join(f"    {line[:300]}" for line in lines[-8:]))
        self.cluster.keep()
        print(f"kept for a look: {self.directory}", flush=True)
        return False
