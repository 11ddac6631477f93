#!/usr/bin/env python3
"""The experts of Weft beside the MoE layer of PyTorch on the same CPU, forward and backward, as a ratio of times.

  tests/bench/moe_vs_torch.py PEERS [--python PYTHON] [--tokens 2048] [--rounds 3] [--threads 2] [--json FILE] [--check]

PEERS is the folder that contains the Python package `peers`; --python names an interpreter with torch. The shape is that of A0.3B-2B:
hidden 1024, 64 experts of width 896, 8 active, routed by chance. PyTorch counts in its fastest combination of precision (f32, bf16) and
way of computing experts (grouped, loop). Rounds are A-B-B-A; those whose probes of the peak differ by more than 10 % are marked.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HIDDEN, WIDTH, EXPERTS, ACTIVE = 1024, 896, 64, 8
TARGET = 4.0

# Run by the interpreter with torch: prints the milliseconds of forward plus backward, and the drift of the probes.
PEER = """
import json, sys, torch
from peers.common import measure, peaks, probe_drift, quartiles
from peers.model import MoE
tokens, hidden, width, experts, active, compute, precision, threads, repetitions = json.loads(sys.argv[1])
torch.set_num_threads(threads)
torch.manual_seed(7)
moe = MoE(hidden, width, experts, active, renormalize=True, compute=compute)
x = torch.randn(1, tokens, hidden, requires_grad=True)
def step():
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        y, _, _ = moe(x)
    y.float().square().sum().backward()
    moe.zero_grad(set_to_none=True)
    x.grad = None
before = peaks("f32")
times = quartiles(measure(step, repetitions, warmup=1))
print(json.dumps({"both": times["median_ms"], "drift": probe_drift(before, peaks("f32"))}))
"""


def weft(args, precision, out):
    subprocess.run([os.path.join(ROOT, "build/weft"), "bench", "moe", "--tokens", str(args.tokens), "--precision", precision, "--skew", "0",
                    "--compute", "grouped", "--threads", str(args.threads), "--repetitions", str(args.repetitions), "--json", out],
                   check=True, stdout=subprocess.DEVNULL)
    with open(out) as f:
        r = json.load(f)["sizes"][0]
    probes = r["peak_gflops_before"], r["peak_gflops_after"]
    return {"both": r["ways"]["grouped"]["both_ms"]["median"], "drift": 1 - min(probes) / max(probes),
            "share": r["ways"]["grouped"]["both_share_of_gemm"]}


def peer(args, precision, compute, repetitions):
    task = [args.tokens, HIDDEN, WIDTH, EXPERTS, ACTIVE, compute, precision, args.threads, repetitions]
    try:
        done = subprocess.run([args.python, "-c", PEER, json.dumps(task)], cwd=args.peers, check=True, capture_output=True, text=True,
                              timeout=args.patience)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--precision", nargs="+", default=["bf16", "f32"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=120, help="seconds after which a way of PyTorch counts as not the fastest")
    parser.add_argument("--json", default="")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    args.peers = os.path.abspath(args.peers)

    ways = {}
    for precision in ("f32", "bf16"):
        for compute in ("grouped", "loop"):
            found = peer(args, precision, compute, 1)
            print(f"PyTorch {precision} {compute}: " + (f"{found['both']:.0f} ms" if found else f"more than {args.patience:.0f} s"), flush=True)
            if found:
                ways[precision, compute] = found["both"]
    fastest = min(ways, key=ways.get)

    results, missed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        for precision in args.precision:
            rounds = []
            for _ in range(args.rounds):
                a1, b1 = weft(args, precision, out), peer(args, *fastest, args.repetitions)
                b2, a2 = peer(args, *fastest, args.repetitions), weft(args, precision, out)
                rounds.append({"ratio": (b1["both"] + b2["both"]) / (a1["both"] + a2["both"]), "share": a1["share"],
                               "noisy": max(r["drift"] for r in (a1, b1, b2, a2)) > 0.1})
            quiet = [r for r in rounds if not r["noisy"]] or rounds
            ratio = statistics.median(r["ratio"] for r in quiet)
            missed += precision == "bf16" and ratio < TARGET
            results.append({"precision": precision, "tokens": args.tokens, "peer": list(fastest), "ratio": ratio, "rounds": rounds})
            print(f"{precision}: {ratio:.2f} times PyTorch {' '.join(fastest)}, forward and backward"
                  f"{f' (target {TARGET:.1f})' if precision == 'bf16' else ''}, {100 * quiet[0]['share']:.0f} % of our GEMM"
                  f"{'  noisy: probes drifted' if all(r['noisy'] for r in rounds) else ''}", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
