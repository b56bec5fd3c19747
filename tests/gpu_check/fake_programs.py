"""What the programs of a bundle print on a device that is none: WELL where all is well, ILL where
each kind of failure has come together."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
CURVES = json.loads((ROOT / "scripts/gpu_check/golden_curves.json").read_text())["curves"]
GOLDEN = {golden["case"]["model"]: golden["curve"] for golden in CURVES}
CASE = 'import sys\ncase = (sys.argv + [""])[sys.argv.index("--case") + 1]\n'
STEP = CASE + f"""
curve = {GOLDEN!r}.get(case, [(5.5, 1.0)] * 20)
for step, (loss, norm) in enumerate(curve, 1):
    print(f"step {{step}}: loss {{loss:.6f}}, gradient norm {{norm:.6f}}")
print("x bf16, 2 threads: step median 36.50 ms of 12 (36.10 to 38.00), 448876 tokens/s")
print("model 13100.55 GFLOP a step")
print("memory: 9.0 GiB")
"""
PREDICTION = """print('attention       12   5.000   20.0%')
print('predicted products: 15.00 ms')
print('predicted step: 36.00 ms, 455111 tokens/s, MFU 40.0% of 989 TFLOP/s')
print('memory: 9.0 GiB')
"""
LOCKSTEP = """print('op       apart         us  predicted  shapes')
print('attention    0.1000     60.86       50.11  [256, 256] to [256, 256]')
print('lockstep: 57 ops agree')
"""
PRODUCTS = "print('product bf16 M 8 N 8 K 8: first 12.00 us, best 10.00 us, number 2 of 16')"
LIBRARIES = """for name, version in (("driver", 13000), ("cudart", 13000), ("cublaslt", 130100),
                      ("cudnn", 91900), ("nccl", 22809)):
    print(f"library {name} built {version} found {version}")
"""
TORCH = """print('{"version": "2.15", "attention": "CUDNN_ATTENTION", '
      '"attention_ms": {"CUDNN_ATTENTION": 0.5}, "seconds": [9, 1, 1, 1, 1, 1, 1], "losses": [5.5, 5.25]}')"""
CEILINGS = """print('{"bf16_flops": 7.9e14, "copy_bytes": 3e12, "fp8_flops": 1.5e15}')"""
NCU = """print('==PROF== Connected')
print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
print('"0","gemm(int)","gpu__time_duration.sum","ns","1,500"')
print('"0","gemm(int)","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","81.5"')
"""
CHECKER = "print('========= ERROR SUMMARY: 0 errors')"
TESTS = """print("[  PASSED  ] 7 tests.")"""
TRAINER = "print('trainyard 0.1.0')"
LDD = """import sys
for program in sys.argv[1:]:
    print(f"{program}:\\n\\tlibc.so.6 => /lib/libc.so.6 (0x1)")
"""

# By their paths in an unpacked bundle.
WELL = {"bin/cuda_kernels_test": TESTS, "bin/cuda_training_test": TESTS,
        "bin/trainyard-trainer": TRAINER, "bench/train_step": STEP,
        "bench/predict_step": PREDICTION, "bench/lockstep": LOCKSTEP,
        "bench/matmul_search": PRODUCTS, "bench/gpu_libraries": LIBRARIES,
        "bench/cudnn_device": "print('cudnn 91900 device {}')"}
SCRIPTS = {"torch_llama.py": TORCH, "torch_ceilings.py": CEILINGS,
           "through_service.py": "print('through the service: fine')"}
TOOLS = {"ldd": LDD, "compute-sanitizer": CHECKER, "ncu": NCU}

HANGS = "import time\nprint('so far', flush=True)\ntime.sleep(1000)\n"
FAULT = """import os, sys
if os.environ.get("GTEST_SHARD_INDEX") == "2":
    print("CUDA error: an illegal memory access was encountered (700) after AddBias")
    sys.exit(134)
"""
ILL = {
    "bench/gpu_libraries": LIBRARIES.replace("91900), (", "91000), ("),
    "bin/cuda_kernels_test": FAULT + TESTS,
    "bench/lockstep": CASE + """
if case == "llama3.2-1b":
    print("attention    9.1000     60.86       50.11  [256, 256] to [256, 256]")
    print("apart: attention of block 1: mixed bf16[2, 2] by 0.5")
    sys.exit("error: 1 of 57 ops are apart")
""" + LOCKSTEP,
    "bench/train_step": CASE + """
if "64" in sys.argv:
    sys.exit("error: out of memory: 22.1 GiB of the GPU are wanted, 9.0 GiB are free")
if case == "llama2-7b" and "4096" in sys.argv:
    print("step 1: loss nan, gradient norm nan")
    sys.exit("error: step 1 is not finite")
""" + STEP,
    "bench/matmul_search": CASE + "if case == 'gpt2-124m':\n    import time\n    time.sleep(1000)\n"
                           + PRODUCTS,
}
ILL_KINDS = ["a library has the wrong version", "a kernel faults", "an op differs from the CPU's",
             "a number is not finite", "memory is exhausted", "a program hangs, or is slow"]
