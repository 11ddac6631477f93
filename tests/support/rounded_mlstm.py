"""The results of a golden case of mLSTM with all that Weft rounds to bf16 rounded, in f64 otherwise.

    python tests/support/rounded_mlstm.py tests/golden/layer_mlstm_packed.safetensors

writes out.* and grad.* to tests/golden/rounded/layer_mlstm_packed.safetensors, and prints how far rounding some
things alone moves the output and the gradient of the input gate's bias.
"""
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

# x and the weights that it is multiplied by, projections, the gated output that o_proj reads, and (d...) gradients
# of what is multiplied: of y, of the gates and of the projections.
ALL = "x w q k v ogate gated dy dgate dq dk dv dogate"


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.backward_too = backward
        return x.bfloat16().double() if forward else x

    @staticmethod
    def backward(ctx, g):
        return (g.bfloat16().double() if ctx.backward_too else g), None, None


def core(q, k, v, i, f):
    """The stabilised recurrence of one document; q, k [T, H, dk], v [T, H, dv], i, f [T, H]."""
    heads, dk, dv = q.shape[1], q.shape[2], v.shape[2]
    c, n, m = q.new_zeros(heads, dk, dv), q.new_zeros(heads, dk), q.new_zeros(heads)
    out = []
    for t in range(q.shape[0]):
        decay = F.logsigmoid(f[t])
        level = torch.maximum(decay + m, i[t])
        keep, write = (decay + m - level).exp(), (i[t] - level).exp()
        m = level
        c = keep[:, None, None] * c + write[:, None, None] * k[t][:, :, None] * v[t][:, None, :]
        n = keep[:, None] * n + write[:, None] * k[t]
        s = dk ** -0.5
        below = torch.maximum((s * (q[t] * n).sum(-1)).abs(), (-m).exp()) + 1e-6
        out.append(s * (q[t][:, None, :] @ c)[:, 0] / below[:, None])
    return torch.stack(out), (c, n, m)


def results(case, roundings):
    """out.* and grad.* with `roundings` made: names of what is rounded, d<name> for its gradient."""
    def rounded(name, x):
        return Rounded.apply(x, name in roundings, "d" + name in roundings)

    w = {k[2:]: t.double().requires_grad_() for k, t in case.items() if k.startswith("w.")}
    heads = w["igate.bias"].numel()
    given = case["in.x"][0].double().requires_grad_()
    x = rounded("x", given)
    ys, states = [], []
    borders = case["cu_seqlens"].tolist()
    for begin, end in zip(borders[:-1], borders[1:]):
        def project(name):
            return x[begin:end] @ rounded("w", w[name + ".weight"]).T

        def per_head(name):
            return rounded(name[0], project(name)).view(end - begin, heads, -1)

        gates = [15 * torch.tanh((rounded("gate", project(g)) + w[g + ".bias"]) / 15) for g in ("igate", "fgate")]
        h, state = core(per_head("q_proj"), per_head("k_proj"), per_head("v_proj"), *gates)
        h = F.layer_norm(h, h.shape[-1:], eps=1e-6).flatten(1) * w["norm.weight"]
        y = rounded("gated", torch.sigmoid(rounded("ogate", project("ogate"))) * h)
        ys.append(rounded("y", y @ rounded("w", w["o_proj.weight"]).T))
        states.append(state)
    y = torch.cat(ys)[None]
    gradients = torch.autograd.grad((y * case["cot.y"].double()).sum(), [given, *w.values()])
    out = {"out.y": y, "grad.in.x": gradients[0][None]}
    out.update({f"out.state.{i}": torch.stack(part) for i, part in enumerate(zip(*states))})
    out.update({"grad.w." + name: g for name, g in zip(w, gradients[1:])})
    return {k: t.detach() for k, t in out.items()}


def main():
    path = sys.argv[1]
    case = load_file(path)
    for roundings in ("", "x", "w", "x w", "q", "k", "v", "q k v", ALL):
        got = results(case, roundings.split())
        off = {k: ((t - case[k].double()).abs().max() / case[k].double().abs().max()).item() for k, t in got.items()}
        print(f"{roundings or 'nothing':45s} y {off['out.y']:.4f}  igate.bias {off['grad.w.igate.bias']:.4f}  worst {max(off.values()):.4f}")
    folder = os.path.join(os.path.dirname(path), "rounded")
    os.makedirs(folder, exist_ok=True)
    save_file({k: t.float().contiguous() for k, t in results(case, ALL.split()).items()},
              os.path.join(folder, os.path.basename(path)))


if __name__ == "__main__":
    main()
