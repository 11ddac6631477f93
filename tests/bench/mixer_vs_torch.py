#!/usr/bin/env python3
"""Cores of Weft's mixers beside the same in PyTorch on the same CPU, as ratios of times.

  tests/bench/mixer_vs_torch.py PEERS [--mixer gla fox ...] [--seq 4096] [--dk 128] [--rounds 8] [--threads 2] [--json FILE] [--check]

PEERS is the folder that contains the Python package `peers`; --python names an interpreter with torch and transformers. A round is
A-B-B-A: Weft in both precisions, then PyTorch in both; what counts is the median over the rounds, against the fastest of PyTorch's variants
and precisions for forward and for forward and backward, each by itself. The ratio to PyTorch in the same precision stands beside it. Rounds
in which probes of the machine's peak differ by more than 10 % do not count unless all are such. --check exits with 1 below the targets.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEERS = ["bla", "retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gated_deltanet", "rwkv6", "rwkv7", "softmax", "fox"]
PRECISIONS = ["f32", "bf16"]
TARGETS = {("f32", "forward"): 4.0, ("f32", "both"): 2.5, ("bf16", "forward"): 8.0, ("bf16", "both"): 5.0}


def shape(args):
    return ["--batch", "1", "--seq", str(args.seq), "--heads", str(args.heads), "--dk", str(args.dk), "--dv", str(args.dk),
            "--threads", str(args.threads), "--repetitions", str(args.repetitions)]


def weft(args, mixer, precision, out):
    subprocess.run([os.path.join(ROOT, "build/weft"), "bench", "mixer", "--mixer", mixer, *shape(args), "--precision", precision,
                    "--decode", "0", "--json", out], check=True, stdout=subprocess.DEVNULL)
    with open(out) as f:
        r = json.load(f)
    drift = abs(r["peak_gflops_before"] - r["peak_gflops_after"]) / max(r["peak_gflops_before"], r["peak_gflops_after"])
    return {"forward": r["forward_ms"]["median"], "both": r["forward_backward_ms"]["median"], "drift": drift,
            "share_forward": r["share_of_gemm_forward"], "share_both": r["share_of_gemm"], "program": r["program"]}


def peer(args, mixer, precision, out):
    subprocess.run([args.python, "-m", "peers.bench_mixer", "--mixer", mixer, *shape(args), "--precision", precision, "--json", out],
                   check=True, cwd=args.peers, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out) as f:
        variants = json.load(f)["variants"].values()
    return {"forward": min(v["forward"]["median_ms"] for v in variants),
            "both": min(v["forward_backward"]["median_ms"] for v in variants), "drift": max(v["probe_drift"] for v in variants)}


def one_round(args, mixer, out):
    ours, theirs = {p: [] for p in PRECISIONS}, {p: [] for p in PRECISIONS}
    for run, into in ((weft, ours), (peer, theirs), (peer, theirs), (weft, ours)):
        for p in PRECISIONS:
            into[p].append(run(args, mixer, p, out))
    everything = [r for side in (ours, theirs) for p in PRECISIONS for r in side[p]]
    return {"ours": ours, "theirs": theirs, "noisy": max(r["drift"] for r in everything) > 0.1}


def compare(rounds):
    """A result for each of Weft's precisions, from the rounds that were quiet."""
    quiet = [r for r in rounds if not r["noisy"]] or rounds

    def middle(side, precision, key):
        return statistics.median(x[key] for r in quiet for x in r[side][precision])

    def ratio(precision, other, key):
        return statistics.median(sum(x[key] for x in r["theirs"][other]) / sum(x[key] for x in r["ours"][precision]) for r in quiet)

    results = []
    for precision in PRECISIONS:
        result = {"precision": precision, "program": rounds[0]["ours"][precision][0]["program"], "rounds": len(quiet),
                  "noisy": quiet is rounds and rounds[0]["noisy"]}
        for key in ("forward", "both"):
            fastest = min(PRECISIONS, key=lambda p: middle("theirs", p, key))
            result[key] = {"ms": middle("ours", precision, key), "share_of_gemm": middle("ours", precision, "share_" + key),
                           "torch_precision": fastest, "torch_ms": middle("theirs", fastest, key),
                           "ratio": ratio(precision, fastest, key), "ratio_same_precision": ratio(precision, precision, key)}
        results.append(result)
    return results


def told(result, key, target):
    r = result[key]
    return (f"{r['ratio']:5.2f} times PyTorch's fastest ({r['torch_precision']}; target {target:.1f}), {r['ratio_same_precision']:5.2f} in the same "
            f"precision, {100 * r['share_of_gemm']:3.0f} % of our GEMM")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers")
    parser.add_argument("--mixer", nargs="+", default=PEERS)
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dk", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", default="")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    args.peers = os.path.abspath(args.peers)

    results, missed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        for mixer in args.mixer:
            for r in compare([one_round(args, mixer, out) for _ in range(args.rounds)]):
                results.append({"mixer": mixer, **r})
                print(f"{mixer} {r['precision']} ({r['program']}), {r['rounds']} rounds{', NOISY' if r['noisy'] else ''}")
                for key, name in (("forward", "forward"), ("both", "and backward")):
                    target = TARGETS[r["precision"], key]
                    missed += r[key]["ratio"] < target
                    print(f"  {name:12} {told(r, key, target)}", flush=True)
    print(f"{missed} of {2 * len(results)} targets missed")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
