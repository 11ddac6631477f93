#include "kernels/states/cpu/turn.h"

#include <cmath>

#include "kernels/cpu/tasks.h"
#include "kernels/states/cpu/isa/turn.h"

namespace weft::kernels::cpu {

void turn_state(Exec& exec, ConstView factors, Turn turn, ConstView state, View out) {
  const int64_t heads = factors.shape[0] * factors.shape[1], dk = factors.shape[3];
  const TurnedState args{
      host<float>(factors), host<float>(state), host<float>(out), dk, state.width(), turn};
  const TurnTable& table = table_of<TurnTable>(exec.isa);
  exec.threads.run(heads, [&](int64_t head) { table.turn(args, head); });
}

void conjugate_state(Exec& exec, ConstView state, View out) {
  const int64_t heads = state.shape[0] * state.shape[1], size = state.shape.elements() / heads;
  const TurnTable& table = table_of<TurnTable>(exec.isa);
  exec.threads.run(heads, [&](int64_t head) {
    table.conjugate(host<float>(state) + head * size, host<float>(out) + head * size, size / 2);
  });
}

void last_turns(Exec& exec, std::span<const int32_t> documents, ConstView phase, ConstView g,
                View turns) {
  const int64_t heads = turns.shape[1], dk = turns.shape[3];
  exec.threads.run(turns.shape[0] * heads, [&](int64_t index) {
    const auto d = static_cast<size_t>(index / heads);
    const bool none = documents[d + 1] == documents[d];
    const int64_t last = (int64_t{documents[d + 1]} - 1) * heads * dk + index % heads * dk;
    float* to = host<float>(turns) + index * 2 * dk;
    for (int64_t c = 0; c < dk; ++c) {
      const float angle = none ? 0.0f : host<float>(phase)[last + c];
      const float size = given(g) ? std::exp(host<float>(g)[index * dk + c]) : 1.0f;
      to[c] = size * std::cos(angle), to[dk + c] = size * std::sin(angle);
    }
  });
}

void turn_gradient(Exec& exec, ConstView state, ConstView d_state, View d_angle) {
  const int64_t heads = state.shape[0] * state.shape[1];
  const TurnGradient args{host<float>(state), host<float>(d_state), host<float>(d_angle),
                          state.shape[3], state.width()};
  const TurnTable& table = table_of<TurnTable>(exec.isa);
  exec.threads.run(heads, [&](int64_t head) { table.gradient(args, head); });
}

}  // namespace weft::kernels::cpu
