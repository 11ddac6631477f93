#!/usr/bin/env python3
"""Cores of Weft's mixers beside the same in PyTorch on the same CPU, as ratios of times.

  tests/bench/mixer_vs_torch.py PEERS [--mixer gla fox ...] [--seq 4096] [--dk 128] [--rounds 3] [--threads 2] [--json FILE] [--check]

PEERS is the folder that contains the Python package `peers`; --python names an interpreter with torch. Rounds are A-B-B-A (A: Weft, B:
PyTorch); the peer's fastest variant counts, in the faster of its two precisions. A round whose probes of the machine's peak differ by more
than 10 % is taken again, --rounds times at most, and marked where it stays so. --check exits with 1 below the targets.
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
            "share": r["share_of_gemm"], "program": r["program"]}


def peer(args, mixer, precision, out):
    subprocess.run([args.python, "-m", "peers.bench_mixer", "--mixer", mixer, *shape(args), "--precision", precision, "--json", out],
                   check=True, cwd=args.peers, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out) as f:
        variants = json.load(f)["variants"].values()
    return {"forward": min(v["forward"]["median_ms"] for v in variants),
            "both": min(v["forward_backward"]["median_ms"] for v in variants), "drift": max(v["probe_drift"] for v in variants)}


def measure(args, mixer, precision, peer_precision, out):
    rounds = []
    for _ in range(args.rounds):
        a1, b1 = weft(args, mixer, precision, out), peer(args, mixer, peer_precision, out)
        b2, a2 = peer(args, mixer, peer_precision, out), weft(args, mixer, precision, out)
        noisy = max(r["drift"] for r in (a1, b1, b2, a2)) > 0.1
        rounds.append({"noisy": noisy, "share": a1["share"], "program": a1["program"],
                       **{k: (b1[k] + b2[k]) / (a1[k] + a2[k]) for k in ("forward", "both")}})
    quiet = [r for r in rounds if not r["noisy"]] or rounds
    return {"mixer": mixer, "precision": precision, "peer_precision": peer_precision, "program": rounds[0]["program"],
            "noisy": not any(not r["noisy"] for r in rounds), "rounds": len(quiet),
            **{k: statistics.median(r[k] for r in quiet) for k in ("forward", "both", "share")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers")
    parser.add_argument("--mixer", nargs="+", default=PEERS)
    parser.add_argument("--precision", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dk", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", default="")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    args.peers = os.path.abspath(args.peers)

    results, missed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        for mixer in args.mixer:
            times = {p: peer(args, mixer, p, out)["both"] for p in ("f32", "bf16")}
            faster = min(times, key=times.get)
            for precision in args.precision:
                r = measure(args, mixer, precision, faster, out)
                results.append(r)
                met = [r[k] >= TARGETS[precision, k] for k in ("forward", "both")]
                missed += met.count(False)
                print(f"{mixer:15} {precision:4} ({r['program']}): {r['forward']:5.2f} times PyTorch {faster} forward "
                      f"(target {TARGETS[precision, 'forward']:.1f}), {r['both']:5.2f} forward and backward "
                      f"(target {TARGETS[precision, 'both']:.1f}), {100 * r['share']:.0f} % of our GEMM"
                      f"{'  noisy: probes drifted' if r['noisy'] else ''}", flush=True)
    print(f"{missed} of {2 * len(results)} targets missed")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
