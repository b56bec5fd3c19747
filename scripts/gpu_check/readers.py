"""What the programs of a check print, as entries of results.json. Each reader raises, or says
"failed", for what is not as it must be."""
import csv
import json
import math
import re
import statistics

from runner import Unreadable

# Between bf16 on a GPU and on a CPU, over the steps of a golden curve. Measured on a CPU, bf16
# against f32 in the same program (2026-11-23): over 20 steps of the 124M curve losses differ by at
# most 0.0017 and norms by 1 part in 1,000; over 14 steps of the curve of head dim 128, of only 256
# tokens, by 0.0025 and 0.7 parts in 1,000. Two bf16 devices may be on opposite sides of f32, which
# doubles the difference. Twice that is allowed, and more for norms, which average over less.
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


# Attention that is not cuDNN's, and products in 8 bits that are not cuBLASLt's.
NOT_A_LIBRARYS = (r"(?:cudnn_attention_refused|attention_without_cudnn|"
                  r"scaled_matmul_without_cublaslt).*")
OP_ROW = r"^(\w[\w ]*\w) +(\d+) +([\d.]+) +([\d.]+)%"  # Name, calls, ms, share of the step.
EXPLAINED = 0.1  # A difference to the prediction above this wants a reason.


def prediction(text):
    """Of bench/predict_step."""
    step = re.search(r"^predicted step: ([\d.]+) ms, (\d+) tokens/s, MFU ([\d.]+)%", text, re.M)
    memory = re.search(r"^memory: (.*)$", text, re.M)
    if not step or not memory:
        raise Unreadable("no predicted step, or no memory")
    parts = {name: float(ms)
             for name, ms in re.findall(r"^predicted ([\w -]+): ([\d.]+) ms$", text, re.M)}
    ops = {name: float(ms) for name, _, ms, _ in re.findall(OP_ROW, text, re.M)}
    found = {"step_ms": float(step[1]), "tokens_per_second": int(step[2]),
             "mfu_percent": float(step[3]), "parts_ms": parts, "ops_ms": ops, "memory": memory[1]}
    return {"predicted": found, "summary": f"{step[1]} ms, {step[2]} tokens/s, {memory[1]}"}


def differences(measured, predicted):
    """Ops whose milliseconds are not as predicted, of those that matter, by what they take:
    {name: [measured, predicted]}."""
    matters = 0.01 * sum(measured.values())
    both = {name: (measured.get(name, 0), predicted.get(name, 0))
            for name in {*measured, *predicted}}
    slowest = sorted(both.items(), key=lambda row: -row[1][0])
    return {name: [ms, wanted] for name, (ms, wanted) in slowest
            if max(ms, wanted) > matters and abs(ms - wanted) > EXPLAINED * wanted}


def step_time(golden=None, untrusted=lambda: "", predicted=lambda: None, ceiling=lambda: None):
    """A reader of bench/train_step on a GPU.

    There is no speed without losses, none with attention or products in 8 bits that were not a
    library's, and none where `untrusted` returns why. What was measured is then kept apart.
    `predicted` returns what prediction() found for the step, `ceiling` the FLOP/s that products
    reach at best.
    """
    def read(text):
        steps = curve(text)
        time = re.search(r"step median ([\d.]+) ms of (\d+) \(([\d.]+) to ([\d.]+)\), "
                         r"(\d+) tokens/s", text)
        model = re.search(r"^model ([\d.]+) GFLOP a step$", text, re.M)
        memory = re.search(r"^memory: (.*)$", text, re.M)
        if not time or not model or not memory:
            raise Unreadable("no line with the step's median, its FLOPs or the memory")
        ops = re.findall(OP_ROW, text, re.M)
        found = {"curve": steps, "memory": memory[1],
                 "share_by_op_percent": {name: float(share) for name, _, _, share in ops}}
        wrong = next((f"step {step}: loss {loss}, gradient norm {norm}, is not finite"
                      for step, (loss, norm) in enumerate(steps, 1)
                      if not (math.isfinite(loss) and math.isfinite(norm))), "")
        wrong = wrong or (golden and against(steps, golden)) or untrusted()
        refused = re.search(NOT_A_LIBRARYS, text)
        if not wrong and refused:
            wrong = refused[0][:300]
        median = float(time[1])
        speed = {"median_ms": median, "timed_steps": int(time[2]),
                 "range_ms": [float(time[3]), float(time[4])], "tokens_per_second": int(time[5])}
        if ceiling():
            speed["mfu_of_ceiling_percent"] = 100 * float(model[1]) * 1e12 / median / ceiling()
        if predicted():
            wanted = predicted()
            speed["predicted_ms"] = wanted["step_ms"]
            speed["of_predicted"] = median / wanted["step_ms"]
            measured = {name: float(ms) for name, _, ms, _ in ops}
            speed["ops_not_as_predicted_ms"] = differences(measured, wanted["ops_ms"])
        if wrong:
            return {**found, "untrusted": speed, "failed": wrong}
        return {**found, **speed, "summary": f"{time[5]} tokens/s"}
    return read


def one_line(begin):
    """A reader of a program that says all it has to say in one line."""
    def read(text):
        found = re.search(f"^{re.escape(begin)}(.*)$", text, re.M)
        if not found:
            raise Unreadable(f"no line begins with \"{begin}\"")
        return {"summary": found[1]}
    return read


def lockstep(text, our_attention=False):
    """Of bench/lockstep: each op of a layer, its difference from the CPU's divided by what rounding
    explains, and its microseconds. Attention must be cuDNN's unless it may be ours."""
    rows = re.findall(r"^(\w+) +([\d.]+|inf) +([\d.]+) +([\d.]+)  (.*)$", text, re.M)
    agree = re.search(r"^lockstep: (\d+) ops agree$", text, re.M)
    apart = re.findall(r"^apart: (.*)$", text, re.M)
    if not rows:
        raise Unreadable("no ops")
    ops = [{"op": name, "apart": float(apart), "us": float(us), "predicted_us": float(wanted),
            "shapes": shapes.strip()}
           for name, apart, us, wanted, shapes in rows]
    if apart:
        return {"ops": ops, "apart": apart,
                "failed": f"{len(apart)} ops, first {apart[0][:200]}"}
    if not agree:
        begun = re.findall(r"^at (.*)$", text, re.M)
        return {"ops": ops,
                "failed": f"ended at {begun[-1] if begun else 'its beginning'}"}
    refused = re.search(NOT_A_LIBRARYS, text)
    if refused and not (our_attention and refused[0].startswith("attention_without_cudnn")):
        return {"ops": ops, "failed": refused[0][:300]}
    furthest = max(ops, key=lambda op: op["apart"])
    return {"ops": ops, "summary": f"{agree[1]} ops, furthest {furthest['op']}, "
                                   f"{furthest['apart']} of what rounding explains"}


def products(text):
    """Of bench/matmul_search: microseconds of cuBLASLt's first algorithm and of its fastest."""
    rows = re.findall(r"^product (.+): first ([\d.]+) us, best ([\d.]+) us, "
                      r"number (\d+) of (\d+)$", text, re.M)
    if not rows:
        raise Unreadable("no product")
    found = [{"product": name, "first_us": float(first), "best_us": float(best),
              "best": int(number), "of": int(of)}
             for name, first, best, number, of in rows]
    gain = max(row["first_us"] / row["best_us"] for row in found)
    return {"products": found, "summary": f"{len(found)} products, at best {gain:.2f} times faster "
                                          f"than the first choice"}


CUDNN_FOR_GRAPHS = 91800  # The first that puts attention into CUDA graphs.


def libraries(text):
    """Of ldd on several programs: what is not found, and who wants it."""
    missing, program = {}, ""
    for line in text.splitlines():
        version = re.search(r"(\S+: version `\S+') not found", line)
        library = re.match(r"\s+(\S+) => not found", line)
        if version or library:
            missing.setdefault((version or library)[1], set()).add(program)
        elif not line.startswith(("\t", " ")):
            program = line.rstrip(":").rpartition("/")[2]
    if "libc.so" not in text:
        raise Unreadable("ldd names no libc")
    if missing:
        missing = {library: sorted(programs) for library, programs in missing.items()}
        told = [f"{library} not found ({', '.join(programs)})"
                for library, programs in missing.items()]
        return {"missing": missing, "failed": "; ".join(told)}
    return {"summary": f"{text.count('=>')} libraries found"}


def versions(text):
    """Of bench/gpu_libraries: whether each library can serve in place of the one that the programs
    were built with."""
    rows = re.findall(r"^library (\w+) built (\d+) found (\d+)$", text, re.M)
    if not rows:
        raise Unreadable("no line of a library")
    found = {name: int(version) for name, _, version in rows}
    # Minor versions of one major version serve, but for cuDNN.
    majors = {"driver": 1000, "cudart": 1000, "cublaslt": 10000, "nccl": 10000}
    least = {name: int(built) // majors.get(name, 1) * majors.get(name, 1)
             for name, built, _ in rows}
    least["cudnn"] = CUDNN_FOR_GRAPHS
    told = [f"{name} {found[name]} is older than {least[name]}" for name in found
            if found[name] < least[name]]
    if told:
        return {"versions": found, "failed": "; ".join(told)}
    return {"versions": found, "summary": ", ".join(f"{n} {v}" for n, v in found.items())}


def last_json(text):
    """Of a script that prints what it knows so far, one JSON line after another."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise Unreadable("no line of JSON")
    return json.loads(lines[-1])


def ceilings(text):
    """Of torch_ceilings.py: the best that a copy and products reach here."""
    found = last_json(text)
    if not found["bf16_flops"] > 0 or not found["copy_bytes"] > 0:
        raise Unreadable("no rate of a copy or of bf16")
    fp8 = f", FP8 {found['fp8_flops'] * 1e-12:.0f}" if found.get("fp8_flops") else ""
    return {**found, "summary": f"copy {found['copy_bytes'] * 1e-9:.0f} GB/s, bf16 "
                                f"{found['bf16_flops'] * 1e-12:.0f} TFLOP/s{fp8}"}


def memcheck(text):
    """Of compute-sanitizer, whatever it watched."""
    errors = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    if not errors:
        raise Unreadable("no summary of the checker")
    return {"failed": errors[0]} if int(errors[1]) else {"summary": errors[0]}


def pytorch(tokens, warm_up=4):
    """A reader of torch_llama.py, whose steps have so many tokens."""
    def read(text):
        found = last_json(text)
        seconds = found["seconds"][warm_up:]
        if len(seconds) < 3 or not all(math.isfinite(loss) for loss in found["losses"]):
            raise Unreadable(f"{len(seconds)} timed steps, losses {found['losses'][-3:]}")
        median = statistics.median(seconds)
        return {"version": found["version"], "step_seconds": seconds, "losses": found["losses"],
                "attention": found["attention"], "attention_ms": found["attention_ms"],
                "tokens_per_second": round(tokens / median),
                "summary": f"{tokens / median:.0f} tokens/s, {found['version']}, attention "
                           f"{found['attention']}"}
    return read


NCU_METRICS = ["gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
               "dram__throughput.avg.pct_of_peak_sustained_elapsed", "launch__registers_per_thread"]


def slowest_kernels(text, count=6):
    """Of Nsight Compute's CSV, one row a launch and metric: the kernels that take the longest in
    all."""
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
    kernels = [{"kernel": name, "launches": len(rows),
                "us": sum(row[NCU_METRICS[0]] for row in rows) / 1e3,
                **{metric: max(row.get(metric, 0) for row in rows) for metric in NCU_METRICS[1:]}}
               for name, rows in by_kernel.items()]
    slowest = sorted(kernels, key=lambda kernel: -kernel["us"])[:count]
    return {"kernels": slowest,
            "summary": f"{len(launches)} launches, slowest {slowest[0]['kernel'][:60]}"}
