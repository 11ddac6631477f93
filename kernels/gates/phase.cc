#include "kernels/gates/phase.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/phase.h"

namespace weft::kernels {
namespace {

constexpr int64_t kColumns = 64;  // of one task along a document

void check_f32(ConstView x, std::string_view name) {
  WEFT_CHECK(x.dtype == DType::kF32, "{} is {}, not f32", name, name_of(x.dtype));
}

// task(document, box) for all tokens of every document, by blocks of columns.
template <class Task>
void for_documents(Exec& exec, std::span<const int32_t> documents, ConstView x, Task task) {
  WEFT_CHECK(!documents.empty() && documents.front() == 0 && documents.back() == x.rows(),
             "running_phase: document offsets must go from 0 to {} tokens", x.rows());
  const int64_t across = (x.width() + kColumns - 1) / kColumns;
  const auto count = static_cast<int64_t>(documents.size()) - 1;
  exec.threads.run(count * across, [&](int64_t i) {
    const auto d = static_cast<size_t>(i / across);
    const int64_t left = i % across * kColumns;
    task(i / across,
         Box{documents[d], documents[d + 1], left, std::min(x.width(), left + kColumns)});
  });
}

TurnArgs checked(int64_t heads, ConstView phase, ConstView narrow, ConstView wide) {
  check_real(narrow, "turn: x");
  check_matrix(wide, narrow.rows(), 2 * narrow.width(), "turn: y");
  WEFT_CHECK(heads > 0 && narrow.width() % heads == 0, "turn: {} heads in a width of {}", heads,
             narrow.width());
  TurnArgs args{};
  if (given(phase)) {
    check_matrix(phase, narrow.rows(), narrow.width(), "turn: phase");
    check_f32(phase, "turn: phase");
    args.phase = rows_of(phase);
  }
  args.heads = heads;
  args.width = narrow.width() / heads;
  return args;
}

}  // namespace

void running_phase_forward(Exec& exec, std::span<const int32_t> documents, ConstView theta,
                           View phase) {
  if (nothing_in(theta)) return;
  check_real(theta, "running_phase: theta");
  check_matrix(phase, theta.rows(), theta.width(), "running_phase: phase");
  check_f32(phase, "running_phase: phase");
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_documents(exec, documents, theta, [&](int64_t, const Box& box) {
    table.running(rows_of(theta), rows_of(phase), box);
  });
}

void running_phase_backward(Exec& exec, std::span<const int32_t> documents, ConstView d_phase,
                            ConstView d_last, View d_theta) {
  if (nothing_in(d_phase)) return;
  check_f32(d_phase, "running_phase: d_phase");
  check_matrix(d_theta, d_phase.rows(), d_phase.width(), "running_phase: d_theta");
  const float* last = nullptr;
  if (given(d_last)) {
    const auto count = static_cast<int64_t>(documents.size()) - 1;
    last = vector_of<float>(d_last, count * d_phase.width(), "running_phase: d_last");
  }
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_documents(exec, documents, d_phase, [&](int64_t document, const Box& box) {
    table.running_back(rows_of(d_phase),
                       last == nullptr ? nullptr : last + document * d_phase.width(),
                       rows_of(d_theta), box);
  });
}

void turn_forward(Exec& exec, int64_t heads, ConstView phase, ConstView x, View y) {
  if (nothing_in(x)) return;
  TurnArgs args = checked(heads, phase, x, y);
  args.x = rows_of(x);
  args.to = rows_of(y);
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.turn(args, begin, end); });
}

void turn_backward(Exec& exec, int64_t heads, const TurnBackward& in) {
  if (nothing_in(in.dx)) return;
  TurnArgs args = checked(heads, in.phase, in.dx, in.dy);
  args.dy = rows_of(in.dy);
  args.to = rows_of(in.dx);
  if (given(in.phase)) {
    check_matrix(in.x, in.dx.rows(), in.dx.width(), "turn: x");
    check_matrix(in.d_phase, in.dx.rows(), in.dx.width(), "turn: d_phase");
    check_f32(in.d_phase, "turn: d_phase");
    args.x = rows_of(in.x);
    args.d_phase = rows_of(in.d_phase);
  }
  const PhaseTable& table = table_of<PhaseTable>(exec.isa);
  for_blocks(exec, row_blocks(in.dx.rows(), in.dx.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.turn_back(args, begin, end); });
}

}  // namespace weft::kernels
