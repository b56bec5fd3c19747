"""What was done to whom, and when."""

import collections
import threading
import time


class Timeline:
    def __init__(self, quiet=False):
        self.begin = time.monotonic()
        self.quiet = quiet
        self.counts = collections.Counter()
        self.lock = threading.Lock()

    def seconds(self):
        return time.monotonic() - self.begin

    def note(self, text):
        with self.lock:
            if not self.quiet:
                print(f"{self.seconds():7.2f} s  {text}", flush=True)

    def fault(self, kind, text):
        self.counts[kind] += 1
        self.note(text)
