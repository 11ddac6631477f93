#!/usr/bin/env python3
"""Training steps of Weft beside the same model in PyTorch on the same CPU: the same losses, and the ratio of times.

  tests/bench/step_vs_torch.py PEERS [--check] [--config CONFIG] [--precision f32 bf16] [--rounds 4] [--threads 2] [key=value ...]

PEERS is the folder that contains the Python package `peers` (its bench_step times the PyTorch model and dumps the weights and
tokens it starts from). --python names an interpreter with torch. The ratio is measured in rounds A-B-B-A (A: Weft, B: PyTorch in its
faster precision here), each of --steps steps. A round whose GEMM probes before and after differ by more than 10 % is noisy: it is
shown, and counts only where no round was quiet.

The last lines set every ratio beside its target. With --check the exit code is 0 when all are reached in quiet rounds, else 1.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TARGETS = {"f32": 1.5, "bf16": 3.0}  # times the speed of PyTorch's faster precision; bf16: where the CPU has bf16 products
NOISY = 0.1  # relative difference of the probes around a measurement

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


def measure_round(args, precision, out):
    """One round A-B-B-A: its ratio, and whether the machine kept still."""
    a1 = weft(args, precision, args.steps, out)
    b1 = peer(args, args.peer_precision, args.steps, out)
    b2 = peer(args, args.peer_precision, args.steps, out)
    a2 = weft(args, precision, args.steps, out)
    ours = a1["step_ms"]["median"] + a2["step_ms"]["median"]
    theirs = b1["step"]["median_ms"] + b2["step"]["median_ms"]
    quiet = max(drift(a1), drift(a2), b1["probe_drift"], b2["probe_drift"]) <= NOISY
    print(f"  {precision}: Weft {ours / 2:.1f} ms, PyTorch {args.peer_precision} {theirs / 2:.1f} ms, ratio {theirs / ours:.2f}, "
          f"mfu {(a1['mfu'] + a2['mfu']) / 2:.2f}{'' if quiet else '  (noisy: probes drifted)'}", flush=True)
    return theirs / ours, quiet


def verdict(args, precision, rounds):
    """Prints the ratio beside its target; true when it is reached in quiet rounds."""
    quiet = [ratio for ratio, still in rounds if still]
    ratio = statistics.median(quiet or [ratio for ratio, _ in rounds])
    target = args.target if args.target is not None else TARGETS[precision]
    reached = bool(quiet) and ratio >= target
    of = f"median of {len(quiet)} quiet rounds of {len(rounds)}" if quiet else f"all {len(rounds)} rounds were noisy, which proves nothing"
    print(f"{precision}: {ratio:.2f} times PyTorch {args.peer_precision}, target {target:.2f}: {'reached' if reached else 'NOT reached'} ({of})")
    return reached


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers")
    parser.add_argument("overrides", nargs="*", default=[])
    parser.add_argument("--config", default="")
    parser.add_argument("--precision", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--check", action="store_true", help="exit code 1 unless every target is reached")
    parser.add_argument("--target", type=float, help="ratio to reach, instead of the built-in ones")
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
        rounds = {p: [measure_round(args, p, out) for _ in range(args.rounds)] for p in args.precision}
    reached = [verdict(args, p, rounds[p]) for p in args.precision]
    return 0 if all(reached) or not args.check else 1


if __name__ == "__main__":
    sys.exit(main())
