#include "kernels/gates/cpu/phase.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/phase.h"

namespace weft::kernels::cpu {
namespace {

constexpr int64_t kColumns = 64;  // of one task along a document

// task(document, box) for all tokens of every document, by blocks of columns.
template <class Task>
void for_documents(Exec& exec, std::span<const int32_t> documents, int64_t width, Task task) {
  const int64_t across = (width + kColumns - 1) / kColumns;
  const auto count = static_cast<int64_t>(documents.size()) - 1;
  exec.threads.run(count * across, [&](int64_t i) {
    const auto d = static_cast<size_t>(i / across);
    const int64_t left = i % across * kColumns;
    task(i / across, Box{documents[d], documents[d + 1], left, std::min(width, left + kColumns)});
  });
}

}  // namespace

void running_phase_forward(Exec& exec, std::span<const int32_t> documents, ConstView theta,
                           View phase) {
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_documents(exec, documents, theta.width(), [&](int64_t, const Box& box) {
    table.running(rows_of(theta), rows_of(phase), box);
  });
}

void running_phase_backward(Exec& exec, std::span<const int32_t> documents, ConstView d_phase,
                            ConstView d_last, View d_theta) {
  const float* last = host<float>(d_last);
  const int64_t width = d_phase.width();
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_documents(exec, documents, width, [&](int64_t document, const Box& box) {
    table.running_back(rows_of(d_phase), last == nullptr ? nullptr : last + document * width,
                       rows_of(d_theta), box);
  });
}

void turn_forward(Exec& exec, int64_t heads, ConstView phase, ConstView x, View y) {
  const TurnArgs args{rows_of(phase), rows_of(x), {}, rows_of(y), {}, heads, x.width() / heads};
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.turn(args, begin, end); });
}

void turn_backward(Exec& exec, int64_t heads, const TurnBackward& in) {
  const int64_t width = in.dx.width();
  const TurnArgs args{rows_of(in.phase),   rows_of(in.x), rows_of(in.dy), rows_of(in.dx),
                      rows_of(in.d_phase), heads,         width / heads};
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_blocks(exec, row_blocks(in.dx.rows(), width),
             [&](int64_t, int64_t begin, int64_t end) { table.turn_back(args, begin, end); });
}

}  // namespace weft::kernels::cpu
