"""What the programs of a check print, as entries of results.json. Each raises or says "failed" for what is not as it must be."""
import json
import math
import re

from runner import Unreadable

# Between bf16 on a GPU and on a CPU, over the 20 steps of the golden curve.
LOSS_DIFFERENCE = 0.02
NORM_RATIO = 0.05


def tests(text):
    """Of GoogleTest."""
    ran = re.search(r"\[  PASSED  \] (\d+) test", text)
    failed = sorted({name.rstrip(",") for name in re.findall(r"\[  FAILED  \] (\w\S*\.\S+)", text)})
    if not ran:
        raise Unreadable("no line of GoogleTest says how many passed")
    if int(ran[1]) == 0 and not failed:
        raise Unreadable("no test ran")
    found = {"passed": int(ran[1]), "summary": f"{ran[1]} passed"}
    return {**found, "failed_tests": failed, "failed": f"{len(failed)} tests"} if failed else found


def benchmarks(text):
    """Of Google Benchmark, as JSON; a benchmark that gave up is an error."""
    start = text.find("{\n")
    if start < 0:
        raise Unreadable("no JSON")
    rows = json.JSONDecoder().raw_decode(text[start:])[0]["benchmarks"]
    if not rows:
        raise Unreadable("no benchmark ran")
    wrong = [row["name"] for row in rows if row.get("error_occurred") or not math.isfinite(row.get("real_time", math.nan))]
    kept = [{key: row[key] for key in ("name", "label", "real_time", "time_unit", "GFLOP/s", "GB/s", "of_bound") if key in row}
            for row in rows]
    found = {"benchmarks": kept, "summary": f"{len(kept)} benchmarks"}
    return {**found, "failed": "errors in " + ", ".join(wrong)} if wrong else found


def curve(text):
    """[loss, gradient norm] of each step of bench/train_step."""
    number = r"(-?(?:\d+\.\d+|inf|nan))"
    steps = re.findall(rf"^step (\d+): loss {number}, gradient norm {number}$", text, re.M)
    if not steps or [int(step) for step, _, _ in steps] != list(range(1, len(steps) + 1)):
        raise Unreadable("no losses and gradient norms of steps 1, 2, 3 ...")
    return [[float(loss), float(norm)] for _, loss, norm in steps]


def against(found, golden):
    """"" or where the curve leaves the golden one."""
    if len(found) < len(golden):
        return f"{len(found)} steps, wanted {len(golden)}"
    for step, ((loss, norm), (wanted_loss, wanted_norm)) in enumerate(zip(found, golden), 1):
        if not abs(loss - wanted_loss) <= LOSS_DIFFERENCE:
            return f"step {step}: loss {loss}, a CPU has {wanted_loss}"
        if not abs(norm - wanted_norm) <= NORM_RATIO * wanted_norm:
            return f"step {step}: gradient norm {norm}, a CPU has {wanted_norm}"
    return ""


def step_time(golden=None, untrusted="", cudnn=True):
    """A reader of bench/train_step on a GPU: no speed without losses, none of attention that was not cuDNN's, and none where
    `untrusted` says why there is none."""
    def read(text):
        steps = curve(text)
        time = re.search(r"step median ([\d.]+) ms of (\d+) \(([\d.]+) to ([\d.]+)\), (\d+) tokens/s", text)
        rate = re.search(r"matrix rate ([\d.]+) GFLOP/s, memory rate ([\d.]+) GB/s, model [\d.]+ GFLOP a step: MFU ([\d.]+)%", text)
        memory = re.search(r"^memory: (.*)$", text, re.M)
        if not time or not rate or not memory:
            raise Unreadable("no line with the step's median, the rates or the memory")
        ops = re.findall(r"^(\w[\w ]*\w) +(\d+) +([\d.]+) +([\d.]+)%", text, re.M)
        found = {"curve": steps, "memory": memory[1], "matrix_gflops": float(rate[1]), "memory_gbs": float(rate[2]),
                 "share_by_op_percent": {name: float(share) for name, _, _, share in ops}}
        wrong = next((f"step {step}: loss {loss}, gradient norm {norm}" for step, (loss, norm) in enumerate(steps, 1)
                      if not (math.isfinite(loss) and math.isfinite(norm))), "")
        wrong = wrong or (golden and against(steps, golden)) or untrusted
        refused = re.search(r"(?:cudnn_attention_refused|attention_without_cudnn).*", text)
        if not wrong and cudnn and refused:
            wrong = refused[0][:300]
        if wrong:
            return {**found, "failed": wrong}
        return {**found, "median_ms": float(time[1]), "timed_steps": int(time[2]), "range_ms": [float(time[3]), float(time[4])],
                "tokens_per_second": int(time[5]), "mfu_of_measured_rate_percent": float(rate[3]), "summary": f"{time[5]} tokens/s"}
    return read


def trainer_losses(steps):
    """A reader of a job of so many steps that trainyard-trainer runs alone."""
    def read(text):
        losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", text)]
        if len(losses) != steps:
            raise Unreadable(f"{len(losses)} losses, wanted {steps}")
        return {"losses": losses}
    return read


def one_line(begin):
    """A reader of a program that says all it has to say in one line."""
    def read(text):
        found = re.search(f"^{re.escape(begin)}(.*)$", text, re.M)
        if not found:
            raise Unreadable(f"no line begins with \"{begin}\"")
        return {"summary": found[1]}
    return read
