"""The first screen of a check: what to mend first, and how fast the rows were."""
import causes
from runner import PASSED

COLUMNS = 100
SLOW = 1.1  # Times the predicted time: what is slower wants a reason.


def lines(results, seconds):
    steps = results["steps"]
    count = {word: sum(step["outcome"].startswith(word) for step in steps)
             for word in ("passed", "failed", "skipped", "open")}
    machine = results["machine"]
    told = [f"{machine.get('name', 'no device')}, driver {machine.get('driver_version', 'unknown')}"
            f", {machine.get('trainyard', '')}: {seconds:.0f} s; "
            + ", ".join(f"{number} {word}" for word, number in count.items())]
    told += failures(steps) or ["Nothing failed."]
    told += speeds(steps)
    return [line[:COLUMNS] for line in told]


def failures(steps):
    """A line for each kind of failure, with the first step that has it."""
    by_kind = {}
    for step in steps:
        if step["outcome"].startswith("failed"):
            by_kind.setdefault(step.get("kind", causes.OTHER), []).append(step)
    skipped = [step for step in steps if step["outcome"].startswith("skipped")]
    told = ["Mend first:"] if by_kind or skipped else []
    for number, kind in enumerate(sorted(by_kind, key=causes.ORDER.index), 1):
        first, *more = by_kind[kind]
        also = f" (and {len(more)} more)" if more else ""
        told.append(f"{number:2}. {kind}: {first['name']}{also}: "
                    f"{first.get('says', first['outcome'])}")
    if skipped:
        told.append(f"    {len(skipped)} not begun, first {skipped[0]['name']}: "
                    f"{skipped[0]['outcome'].removeprefix('skipped: ')}")
    return told


def speeds(steps):
    """Rows that are measured: the furthest behind their predictions first."""
    rows = [step for step in steps if step["outcome"] == PASSED and
            "tokens_per_second" in step and not step["name"].startswith("curve ")]
    rows.sort(key=lambda step: -step.get("of_predicted", 0))
    told = ["Speed, the furthest behind its prediction first:"] if rows else []
    for step in rows:
        ratio = step.get("of_predicted")
        beside = f", {ratio:.2f} of the predicted time" if ratio else ""
        worst = next(iter(step.get("ops_not_as_predicted_ms", {}).items()), None)
        why = f"; first {worst[0]}: {worst[1][0]:.2f} ms, predicted {worst[1][1]:.2f}" \
            if worst and ratio and ratio > SLOW else ""
        told.append(f"    {step['name']}: {step['tokens_per_second']} tokens/s{beside}{why}")
    return told
