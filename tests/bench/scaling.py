#!/usr/bin/env python3
"""Two ranks against one, axis by axis, corrected for what two cores of this machine give together.

  tests/bench/scaling.py [CONFIG] [--axes data sequence tensor expert pipe] [--rounds 3] [--steps 5] [--json FILE] [key=value ...]

One step of the same global batch: A is two separate one-rank programs side by side, one thread each, which is what two cores can give
without talking (half of its time is the ideal); B is two ranks of one thread each. Efficiency is time(A) / (2 time(B)); rounds are A-B-B-A.
For pipe the step has 8 micro-batches, and the bubble that bench step measured is shown beside its formula.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGETS = {"data": 0.93, "sequence": 0.93, "expert": 0.88, "pipe": 0.80}


def layout(axis):
    # Data ranks are what the other axes leave of the world; experts are spread over them.
    return [] if axis in ("one", "data") else [f"parallel.{axis}=2"]


def command(args, axis, out):
    weft = [os.path.join(ROOT, "build/weft"), "bench", "step", args.config, "--threads", "1", "--steps", str(args.steps), "--json", out,
            *args.overrides, *layout(axis)]
    return weft if axis == "one" else [os.path.join(ROOT, "launcher/run"), "-n", "2", *weft]


def side_by_side(args, folder):
    outs = [os.path.join(folder, f"one{i}.json") for i in range(2)]
    started = [subprocess.Popen(["taskset", "-c", str(core), *command(args, "one", out)], stdout=subprocess.DEVNULL)
               for core, out in enumerate(outs)]
    if any(p.wait() for p in started):
        sys.exit("scaling: the one-rank program failed")
    return statistics.mean(json.load(open(out))["step_ms"]["median"] for out in outs)


def ranks(args, axis, folder):
    out = os.path.join(folder, "two.json")
    subprocess.run(command(args, axis, out), check=True, stdout=subprocess.DEVNULL)
    return json.load(open(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default=os.path.join(ROOT, "configs/quickstart.toml"))
    parser.add_argument("overrides", nargs="*", default=[])
    parser.add_argument("--axes", nargs="+", default=["data", "sequence", "tensor", "expert", "pipe"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", default="")
    args = parser.parse_args()

    results = []
    with tempfile.TemporaryDirectory() as folder:
        for axis in args.axes:
            rounds = []
            for _ in range(args.rounds):
                a1, b1 = side_by_side(args, folder), ranks(args, axis, folder)
                b2, a2 = ranks(args, axis, folder), side_by_side(args, folder)
                rounds.append({"efficiency": (a1 + a2) / (b1["step_ms"]["median"] + b2["step_ms"]["median"]) / 2,
                               "comm_share": b1["comm_share"], "bubble": b1.get("bubble")})
            efficiency = statistics.median(r["efficiency"] for r in rounds)
            results.append({"axis": axis, "efficiency": efficiency, "rounds": rounds})
            bubble = rounds[0]["bubble"]
            print(f"{axis:9} {100 * efficiency:4.0f} % of two cores"
                  f"{f' (target {100 * TARGETS[axis]:.0f} %)' if axis in TARGETS else ''}, "
                  f"{100 * rounds[0]['comm_share']:.0f} % of the first rank's time in calls to others"
                  f"{'' if axis != 'pipe' or not bubble else ', bubble ' + json.dumps(bubble)}", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
