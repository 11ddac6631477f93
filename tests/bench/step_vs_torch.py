#!/usr/bin/env python3
"""Training steps of Weft beside the same model in PyTorch on the same CPU: the same losses, and the ratio of times.

  tests/bench/step_vs_torch.py PEERS [--config CONFIG] [--precision f32 bf16] [--rounds 4] [--threads 2] [key=value ...]

PEERS is the folder that contains the Python package `peers` (its bench_step times the PyTorch model and dumps the weights and
tokens it starts from). --python names an interpreter with torch. The ratio is measured in rounds A-B-B-A (A: Weft, B: PyTorch in its
faster precision here), each of --steps steps; a round whose GEMM probes differ by more than 10 % is marked.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def weft(args, precision, steps, out, extra=()):
    command = [os.path.join(ROOT, "build/weft"), "bench", "step", args.config, *args.overrides, f"train.precision={precision}",
               "--threads", str(args.threads), "--steps", str(steps), "--json", out, *extra]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(out) as f:
        return json.load(f)


def peer(args, precision, steps, out, extra=()):
    command = [args.python, "-m", "peers.bench_step", "--config", args.config, *args.overrides, f"train.precision={precision}",
               "--threads", str(args.threads), "--steps", str(steps), "--json", out, *extra]
    subprocess.run(command, check=True, cwd=args.peers, stdout=subprocess.DEVNULL)
    with open(out) as f:
        return json.load(f)


def drift(result):
    before, after = result["peak_gflops_before"], result["peak_gflops_after"]
    return abs(before - after) / max(before, after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers")
    parser.add_argument("overrides", nargs="*", default=[])
    parser.add_argument("--config", default="")
    parser.add_argument("--precision", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--peer-precision", default="f32", help="the peer's faster one on this machine")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_intermixed_args()
    args.peers = os.path.abspath(args.peers)
    args.config = os.path.abspath(args.config or os.path.join(args.peers, "peers/configs/small.toml"))
    args.overrides = args.overrides or ["model.layer.L.mixer=retnet"]

    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        same = os.path.join(folder, "same")
        theirs = peer(args, args.peer_precision, 18, out, ["--warmup", "2", "--dump", same])["losses"]
        for precision in args.precision:
            ours = weft(args, precision, 18, out, ["--warmup", "2", "--from", same])["losses"]
            worst = max(abs(a - b) for a, b in zip(ours, theirs))
            print(f"{precision}: 20 losses from the same weights and tokens differ by at most {worst:.2e} "
                  f"(PyTorch {args.peer_precision}: {theirs[0]:.4f} -> {theirs[-1]:.4f})")
        for precision in args.precision:
            ratios = []
            for _ in range(args.rounds):
                a1 = weft(args, precision, args.steps, out)
                b1 = peer(args, args.peer_precision, args.steps, out)
                b2 = peer(args, args.peer_precision, args.steps, out)
                a2 = weft(args, precision, args.steps, out)
                ours = a1["step_ms"]["median"] + a2["step_ms"]["median"]
                theirs_ms = b1["step"]["median_ms"] + b2["step"]["median_ms"]
                ratios.append(theirs_ms / ours)
                noisy = max(drift(a1), drift(a2), b1["probe_drift"], b2["probe_drift"]) > 0.1
                print(f"  {precision}: Weft {ours / 2:.1f} ms, PyTorch {args.peer_precision} {theirs_ms / 2:.1f} ms, "
                      f"ratio {ratios[-1]:.2f}, mfu {a1['mfu']:.2f}{'  (noisy: probes drifted)' if noisy else ''}")
            print(f"{precision}: {statistics.median(ratios):.2f} times PyTorch {args.peer_precision} (median of {len(ratios)} rounds)")


if __name__ == "__main__":
    main()
