"""What the programs of a check print, as entries of results.json. Each raises or says "failed" for what is not as it must be."""
import csv
import json
import math
import re
import statistics

from runner import Unreadable

# Between bf16 on a GPU and on a CPU, over the steps of a golden curve. Measured on a CPU, bf16 against f32 in the same
# program (2026-11-23): over 20 steps of the 124M curve losses differ by at most 0.0017 and norms by 1 part in 1,000; over 14
# steps of the curve of head dim 128, of only 256 tokens, by 0.0025 and 0.7 parts in 1,000. Two bf16 devices may be on
# opposite sides of f32, which doubles the difference; twice that is allowed, and more for norms, which average over less.
LOSS_DIFFERENCE = 0.01
NORM_RATIO = 0.02


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


NOT_CUDNNS = r"(?:cudnn_attention_refused|attention_without_cudnn).*"
OP_ROW = r"^(\w[\w ]*\w) +(\d+) +([\d.]+) +([\d.]+)%"  # Name, calls, ms, share of the step.
EXPLAINED = 0.1  # A difference to the prediction above this wants a reason.


def prediction(text):
    """Of bench/predict_step."""
    step = re.search(r"^predicted step: ([\d.]+) ms, (\d+) tokens/s, MFU ([\d.]+)%", text, re.M)
    memory = re.search(r"^memory: (.*)$", text, re.M)
    if not step or not memory:
        raise Unreadable("no predicted step, or no memory")
    parts = {name: float(ms) for name, ms in re.findall(r"^predicted ([\w -]+): ([\d.]+) ms$", text, re.M)}
    ops = {name: float(ms) for name, _, ms, _ in re.findall(OP_ROW, text, re.M)}
    found = {"step_ms": float(step[1]), "tokens_per_second": int(step[2]), "mfu_percent": float(step[3]), "parts_ms": parts,
             "ops_ms": ops, "memory": memory[1]}
    return {"predicted": found, "summary": f"{step[1]} ms, {step[2]} tokens/s, {memory[1]}"}


def differences(measured, predicted):
    """Ops whose milliseconds are not as predicted, of those that matter: {name: [measured, predicted]}."""
    matters = 0.01 * sum(measured.values())
    both = {name: (measured.get(name, 0), predicted.get(name, 0)) for name in {*measured, *predicted}}
    return {name: [ms, wanted] for name, (ms, wanted) in sorted(both.items(), key=lambda row: -row[1][0])
            if max(ms, wanted) > matters and abs(ms - wanted) > EXPLAINED * wanted}


def step_time(golden=None, untrusted="", predicted=None):
    """A reader of bench/train_step on a GPU: no speed without losses, none of attention that was not cuDNN's, and none where
    `untrusted` says why there is none; what was measured is kept apart. `predicted`: what prediction() found for the step."""
    def read(text):
        steps = curve(text)
        time = re.search(r"step median ([\d.]+) ms of (\d+) \(([\d.]+) to ([\d.]+)\), (\d+) tokens/s", text)
        rate = re.search(r"matrix rate ([\d.]+) GFLOP/s, memory rate ([\d.]+) GB/s, model [\d.]+ GFLOP a step: MFU ([\d.]+)%", text)
        memory = re.search(r"^memory: (.*)$", text, re.M)
        if not time or not rate or not memory:
            raise Unreadable("no line with the step's median, the rates or the memory")
        ops = re.findall(OP_ROW, text, re.M)
        found = {"curve": steps, "memory": memory[1], "matrix_gflops": float(rate[1]), "memory_gbs": float(rate[2]),
                 "share_by_op_percent": {name: float(share) for name, _, _, share in ops}}
        wrong = next((f"step {step}: loss {loss}, gradient norm {norm}" for step, (loss, norm) in enumerate(steps, 1)
                      if not (math.isfinite(loss) and math.isfinite(norm))), "")
        wrong = wrong or (golden and against(steps, golden)) or untrusted
        refused = re.search(NOT_CUDNNS, text)
        if not wrong and refused:
            wrong = refused[0][:300]
        speed = {"median_ms": float(time[1]), "timed_steps": int(time[2]), "range_ms": [float(time[3]), float(time[4])],
                 "tokens_per_second": int(time[5]), "mfu_of_measured_rate_percent": float(rate[3])}
        summary = f"{time[5]} tokens/s"
        if predicted:
            speed["predicted_ms"] = predicted["step_ms"]
            speed["ops_not_as_predicted_ms"] = differences({name: float(ms) for name, _, ms, _ in ops}, predicted["ops_ms"])
            summary += f", {float(time[1]) / predicted['step_ms']:.2f} of the predicted time"
        if wrong:
            return {**found, "untrusted": speed, "failed": wrong}
        return {**found, **speed, "summary": summary}
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


def lockstep(text):
    """Of bench/lockstep: each op of a layer, its difference from the CPU's divided by what rounding explains, microseconds."""
    rows = re.findall(r"^(\w+) +([\d.]+|inf) +([\d.]+) +([\d.]+)  (.*)$", text, re.M)
    agree = re.search(r"^lockstep: (\d+) ops agree$", text, re.M)
    apart = re.findall(r"^apart: (.*)$", text, re.M)
    if not rows:
        raise Unreadable("no ops")
    ops = [{"op": name, "apart": float(apart), "us": float(us), "predicted_us": float(wanted), "shapes": shapes.strip()}
           for name, apart, us, wanted, shapes in rows]
    if apart:
        return {"ops": ops, "apart": apart, "failed": f"{len(apart)} ops, first {apart[0][:200]}"}
    if not agree:
        begun = re.findall(r"^at (.*)$", text, re.M)
        return {"ops": ops, "failed": f"ended at {begun[-1] if begun else 'its beginning'}"}
    refused = re.search(NOT_CUDNNS, text)
    if refused:
        return {"ops": ops, "failed": refused[0][:300]}
    furthest = max(ops, key=lambda op: op["apart"])
    return {"ops": ops, "summary": f"{agree[1]} ops, furthest {furthest['op']}, {furthest['apart']} of what rounding explains"}


def products(text):
    """Of bench/matmul_search: microseconds of cuBLASLt's first algorithm and of its fastest."""
    rows = re.findall(r"^product (.+): first ([\d.]+) us, best ([\d.]+) us, number (\d+) of (\d+)$", text, re.M)
    if not rows:
        raise Unreadable("no product")
    found = [{"product": name, "first_us": float(first), "best_us": float(best), "best": int(number), "of": int(of)}
             for name, first, best, number, of in rows]
    gain = max(row["first_us"] / row["best_us"] for row in found)
    return {"products": found, "summary": f"{len(found)} products, at best {gain:.2f} times faster than the first choice"}


def pytorch(tokens, warm_up=4):
    """A reader of torch_llama.py, whose steps have so many tokens."""
    def read(text):
        found = json.loads(text.strip().splitlines()[-1])
        seconds = found["seconds"][warm_up:]
        if len(seconds) < 3 or not all(math.isfinite(loss) for loss in found["losses"]):
            raise Unreadable(f"{len(seconds)} timed steps, losses {found['losses'][-3:]}")
        median = statistics.median(seconds)
        return {"version": found["version"], "step_seconds": seconds, "losses": found["losses"],
                "tokens_per_second": round(tokens / median), "summary": f"{tokens / median:.0f} tokens/s, {found['version']}"}
    return read


NCU_METRICS = ["gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
               "dram__throughput.avg.pct_of_peak_sustained_elapsed", "launch__registers_per_thread"]


def slowest_kernels(text, count=6):
    """Of Nsight Compute's CSV, one row a launch and metric: the kernels that take the longest in all."""
    start = text.find('"ID"')
    if start < 0:
        raise Unreadable("no CSV of Nsight Compute")
    launches = {}
    for row in csv.DictReader(text[start:].splitlines()):
        if row.get("Metric Name") in NCU_METRICS:
            metrics = launches.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
            metrics[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    by_kernel = {}
    for launch in launches.values():
        by_kernel.setdefault(launch["kernel"], []).append(launch)
    if not by_kernel:
        raise Unreadable("no launches")
    kernels = [{"kernel": name, "launches": len(rows), "us": sum(row[NCU_METRICS[0]] for row in rows) / 1e3,
                **{metric: max(row.get(metric, 0) for row in rows) for metric in NCU_METRICS[1:]}}
               for name, rows in by_kernel.items()]
    slowest = sorted(kernels, key=lambda kernel: -kernel["us"])[:count]
    return {"kernels": slowest, "summary": f"{len(launches)} launches, slowest {slowest[0]['kernel'][:60]}"}
