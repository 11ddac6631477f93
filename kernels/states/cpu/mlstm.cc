#include "kernels/states/cpu/mlstm.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/tasks.h"
#include "kernels/states/cpu/isa/mlstm.h"

namespace weft::kernels::cpu {
namespace {

// e^x for differences of m, with nothing left of a state that was never written.
float weight_of(float x) { return x < 0.5f * kMlstmNothing ? 0.0f : std::exp(x); }

// How a span and the state that enters it share in the one that leaves.
struct Shares {
  float entering, span, m;
  bool entering_wins;  // then m is that of the entering state
  Shares(float kept, float written)
      : entering(weight_of(kept - std::max(kept, written))),
        span(weight_of(written - std::max(kept, written))),
        m(std::max(kept, written)),
        entering_wins(kept > written) {}
};

// The numbers of one head in a part of a state.
template <class V>
auto head_of(const V& part, int64_t head, int64_t heads) {
  return host<float>(part) + head * (part.shape.elements() / heads);
}

struct MlstmHeads {
  int64_t count, dk, dv;
  explicit MlstmHeads(ConstView c)
      : count(c.shape[0] * c.shape[1]), dk(c.shape[2]), dv(c.shape[3]) {}
  int64_t wide() const { return dk * (dv + 1); }
};

}  // namespace

void mlstm_apply(Exec& exec, ConstView b, const MlstmState& span, const MlstmState& entering,
                 const MlstmStateOut& leaving) {
  const MlstmHeads s(entering.c);
  const MlstmStatesTable& table = table_of<MlstmStatesTable>(exec.isa);
  exec.threads.run(s.count, [&](int64_t i) {
    const Shares w(host<float>(b)[i] + host<float>(entering.m)[i], host<float>(span.m)[i]);
    const auto mix = [&](ConstView before, ConstView added, View to, int64_t size) {
      table.mix({head_of(before, i, s.count), head_of(added, i, s.count), head_of(to, i, s.count),
                 size, w.entering, w.span});
    };
    mix(entering.c, span.c, leaving.c, s.dk * s.dv);
    mix(entering.n, span.n, leaving.n, s.dk);
    host<float>(leaving.m)[i] = w.m;
  });
}

void mlstm_apply_adjoint(Exec& exec, ConstView b, const MlstmState& span,
                         const MlstmState& entering, const MlstmState& d_leaving,
                         const MlstmStateOut& d_entering) {
  const MlstmHeads s(entering.c);
  const MlstmStatesTable& table = table_of<MlstmStatesTable>(exec.isa);
  exec.threads.run(s.count, [&](int64_t i) {
    const Shares w(host<float>(b)[i] + host<float>(entering.m)[i], host<float>(span.m)[i]);
    double dm = w.entering_wins ? double{host<float>(d_leaving.m)[i]} : 0.0;
    const auto part = [&](ConstView d, ConstView before, ConstView added, View to, int64_t size) {
      const float* from = head_of(d, i, s.count);
      table.mix({from, nullptr, head_of(to, i, s.count), size, w.entering, 0.0f});
      // Where m is that of the entering state, only what was written is rescaled.
      dm += w.entering_wins ? -w.span * table.dot(from, head_of(added, i, s.count), size)
                            : w.entering * table.dot(from, head_of(before, i, s.count), size);
    };
    part(d_leaving.c, entering.c, span.c, d_entering.c, s.dk * s.dv);
    part(d_leaving.n, entering.n, span.n, d_entering.n, s.dk);
    host<float>(d_entering.m)[i] = static_cast<float>(dm);
  });
}

void mlstm_widen(Exec& exec, const MlstmState& state, View wide) {
  const MlstmHeads s(state.c);
  const MlstmStatesTable& table = table_of<MlstmStatesTable>(exec.isa);
  exec.threads.run(s.count, [&](int64_t i) {
    table.join({head_of(state.c, i, s.count), head_of(state.n, i, s.count), s.dk, s.dv,
                std::exp(host<float>(state.m)[i])},
               host<float>(wide) + i * s.wide());
  });
}

void mlstm_widen_backward(Exec& exec, ConstView wide, ConstView m, ConstView d_wide,
                          const MlstmStateOut& d) {
  const MlstmHeads s(d.c);
  const MlstmStatesTable& table = table_of<MlstmStatesTable>(exec.isa);
  exec.threads.run(s.count, [&](int64_t i) {
    const float* from = host<float>(d_wide) + i * s.wide();
    float factor = 1.0f;
    if (given(m)) {
      const double along = table.dot(from, host<float>(wide) + i * s.wide(), s.wide());
      host<float>(d.m)[i] += static_cast<float>(along);
      factor = std::exp(host<float>(m)[i]);
    }
    table.split(from, {head_of(d.c, i, s.count), head_of(d.n, i, s.count), s.dk, s.dv, factor});
  });
}

void mlstm_stabilise(Exec& exec, ConstView wide, ConstView rest, ConstView m, View c, View n) {
  const MlstmHeads s(c);
  const MlstmStatesTable& table = table_of<MlstmStatesTable>(exec.isa);
  exec.threads.run(s.count, [&](int64_t i) {
    const float level = host<float>(m)[i];
    const float factor =
        level < 0.5f * kMlstmNothing ? 0.0f : std::exp(host<float>(rest)[i] - level);
    table.split(host<float>(wide) + i * s.wide(),
                {head_of(c, i, s.count), head_of(n, i, s.count), s.dk, s.dv, factor});
  });
}

void mlstm_stabilise_backward(Exec& exec, ConstView wide, ConstView rest, ConstView m,
                              const MlstmState& d, const MlstmWideGradient& out) {
  const MlstmHeads s(d.c);
  const MlstmStatesTable& table = table_of<MlstmStatesTable>(exec.isa);
  exec.threads.run(s.count, [&](int64_t i) {
    float* to = host<float>(out.wide) + i * s.wide();
    table.join({head_of(d.c, i, s.count), head_of(d.n, i, s.count), s.dk, s.dv,
                std::exp(host<float>(rest)[i] - host<float>(m)[i])},
               to);
    const double along = table.dot(to, host<float>(wide) + i * s.wide(), s.wide());
    host<float>(out.rest)[i] = static_cast<float>(along);
    host<float>(out.m)[i] = static_cast<float>(double{host<float>(d.m)[i]} - along);
  });
}

void last_rows(Exec&, std::span<const int32_t> documents, ConstView rows, ConstView entering,
               View last) {
  const int64_t width = rows.width();
  const auto bytes = static_cast<size_t>(width) * sizeof(float);
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    const auto at = static_cast<int64_t>(d) * width;
    float* to = host<float>(last) + at;
    if (documents[d + 1] > documents[d]) {
      std::memcpy(to, host<float>(rows) + (documents[d + 1] - 1) * rows.row_stride, bytes);
    } else if (given(entering)) {
      std::memcpy(to, host<float>(entering) + at, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

}  // namespace weft::kernels::cpu
