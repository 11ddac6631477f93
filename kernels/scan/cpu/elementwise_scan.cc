#include "kernels/scan/cpu/elementwise_scan.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/elementwise.h"
#include "kernels/scan/cpu/isa/elementwise_scan.h"

namespace weft::kernels::cpu {
namespace {

struct Sizes {
  int64_t tokens, channels, states, documents;
};

template <class Scan>
Sizes sizes_of(const Scan& in) {
  return {in.x.rows(), in.x.width(), in.a_log.width(), documents_of(in)};
}

// Null when not given.
template <class V>
auto numbers_of(const V& x) {
  using Float = decltype(host<float>(x));
  return given(x) ? host<float>(x) : Float{nullptr};
}

// Neighbouring documents that make up a task, of about kRun tokens or one longer document: enough
// work beside the sums that every task leaves. The cut depends on shapes alone.
struct Run {
  int64_t first, last;  // documents
};
constexpr int64_t kRun = 1024;
std::vector<Run> runs_of(std::span<const int32_t> offsets) {
  std::vector<Run> runs;
  const auto documents = static_cast<int64_t>(offsets.size()) - 1;
  for (int64_t d = 0; d < documents; ++d) {
    if (runs.empty() || offsets[d] - offsets[runs.back().first] >= kRun) runs.push_back({d, d});
    runs.back().last = d + 1;
  }
  return runs;
}

int64_t blocks_of(const Sizes& s) { return (s.channels + kScanChannels - 1) / kScanChannels; }

template <class R>
R from_column(R rows, int64_t column) {
  if (rows.data == nullptr) return rows;
  using Char = std::conditional_t<std::is_same_v<R, ConstRows>, const char, char>;
  rows.data = static_cast<Char*>(rows.data) + column * size_of(rows.dtype);
  return rows;
}
template <class Float>
Float* advanced(Float* p, int64_t count) {
  return p == nullptr ? nullptr : p + count;
}

// One block of channels in one run of documents, of a scan of all.
struct Piece {
  int64_t run, block;
  Run documents;
  int64_t channel() const { return block * kScanChannels; }
};
ChannelScan piece_of(const ChannelScan& whole, const Piece& p, const Sizes& s) {
  ChannelScan part = whole;
  const int64_t channel = p.channel(), numbers = channel * s.states;
  part.x = from_column(whole.x, channel), part.dt = from_column(whole.dt, channel);
  part.a_log += numbers, part.skip = advanced(whole.skip, channel);
  if (whole.log_dt != nullptr) part.log_dt += channel, part.b += numbers, part.c += numbers;
  part.initial = advanced(whole.initial, p.documents.first * s.states * s.channels + channel);
  part.offsets += p.documents.first;
  part.documents = p.documents.last - p.documents.first;
  part.channels = std::min(kScanChannels, s.channels - channel);
  return part;
}

// task(piece, scratch of the thread) for all pieces.
template <class Task>
void for_pieces(Exec& exec, const Sizes& s, const std::vector<Run>& runs, int64_t scratch_floats,
                Task task) {
  const int64_t floats = (scratch_floats + 15) / 16 * 16, blocks = blocks_of(s);
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(static_cast<int64_t>(runs.size()) * blocks, [&](int64_t i, int thread) {
    task(Piece{i / blocks, i % blocks, runs[i / blocks]}, host<float>(scratch) + thread * floats);
  });
}

void scan_forward(Exec& exec, const ChannelScan& whole, const Sizes& s,
                  std::span<const int32_t> documents, View out, View final_state) {
  const ChannelScanTable& table = table_of<ChannelScanTable>(exec.isa);
  float* final = numbers_of(final_state);
  for_pieces(exec, s, runs_of(documents), table.forward_scratch(s.states),
             [&](const Piece& p, float* scratch) {
               const int64_t state = p.documents.first * s.states * s.channels + p.channel();
               table.forward(piece_of(whole, p, s),
                             {from_column(rows_of(out), p.channel()), advanced(final, state)},
                             scratch);
             });
}

// Partial gradients of pieces, which are then added up in order: one row per run for numbers per
// channel, one matrix per block for numbers per token (selective).
struct Sums {
  Sums(Exec& exec, const Sizes& s, int64_t runs, bool selective)
      : a_log(exec.scratch({runs, s.channels * s.states})), skip(exec.scratch({runs, s.channels})) {
    const Shape shape =
        selective ? Shape{blocks_of(s), s.tokens * s.states} : Shape{runs, s.channels * s.states};
    b = exec.scratch(shape), c = exec.scratch(shape);
    if (!selective) log_dt = exec.scratch({runs, s.channels});
  }
  Tensor a_log, skip, b, c, log_dt;
};

// d_b and d_c lie by token in a selective scan.
ChannelScanGradients piece_of(const ChannelScanGradients& whole, const Sums& sums, const Piece& p,
                              const Sizes& s) {
  ChannelScanGradients part = whole;
  const int64_t channel = p.channel(), state = p.documents.first * s.states * s.channels + channel;
  part.dy = from_column(whole.dy, channel);
  part.dx = from_column(whole.dx, channel), part.d_dt = from_column(whole.d_dt, channel);
  part.d_final = advanced(whole.d_final, state);
  part.d_initial = advanced(whole.d_initial, state);
  const int64_t row = p.run * s.channels + channel;
  part.d_a_log = host<float>(sums.a_log) + row * s.states;
  part.d_skip = host<float>(sums.skip) + row;
  const bool selective = !sums.log_dt.defined();
  const int64_t at = selective ? p.block * s.tokens * s.states : row * s.states;
  part.d_b = host<float>(sums.b) + at, part.d_c = host<float>(sums.c) + at;
  if (!selective) part.d_log_dt = host<float>(sums.log_dt) + row;
  return part;
}

void scan_backward(Exec& exec, const ChannelScan& whole, const ChannelScanGradients& g,
                   const Sizes& s, const std::vector<Run>& runs, const Sums& sums) {
  int64_t longest = 0;
  for (const Run& run : runs) {
    for (int64_t d = run.first; d < run.last; ++d) {
      longest = std::max<int64_t>(longest, whole.offsets[d + 1] - whole.offsets[d]);
    }
  }
  const ChannelScanTable& table = table_of<ChannelScanTable>(exec.isa);
  for_pieces(exec, s, runs, table.backward_scratch(longest, s.states),
             [&](const Piece& p, float* scratch) {
               table.backward(piece_of(whole, p, s), piece_of(g, sums, p, s), scratch);
             });
}

// A selective scan with b and c as contiguous f32, which every block of channels reads again.
struct Selective {
  Selective(Exec& exec, const SelectiveScan& in, ConstView initial_state)
      : s(sizes_of(in)), b(plain(exec, in.b, b_copy)), c(plain(exec, in.c, c_copy)) {
    scan = {.x = rows_of(in.x),
            .dt = rows_of(in.dt),
            .log_dt = nullptr,
            .b = host<float>(b),
            .c = host<float>(c),
            .a_log = host<float>(in.a_log),
            .skip = numbers_of(in.skip),
            .initial = numbers_of(initial_state),
            .offsets = in.documents.data(),
            .documents = s.documents,
            .channels = s.channels,
            .states = s.states,
            .stride = s.channels};
  }
  static ConstView plain(Exec& exec, ConstView x, Tensor& copy) {
    if (x.dtype == DType::kF32 && x.contiguous()) return x;
    copy = exec.scratch(x.shape);
    cpu::copy(exec, x, copy);
    return copy;
  }

  Sizes s;
  Tensor b_copy, c_copy;
  ConstView b, c;
  ChannelScan scan;
};

ChannelScan static_scan_of(const StaticScan& in, const Sizes& s, ConstView initial_state) {
  return {.x = rows_of(in.x),
          .dt = {nullptr, 0, DType::kF32},
          .log_dt = host<float>(in.log_dt),
          .b = host<float>(in.b),
          .c = host<float>(in.c),
          .a_log = host<float>(in.a_log),
          .skip = numbers_of(in.skip),
          .initial = numbers_of(initial_state),
          .offsets = in.documents.data(),
          .documents = s.documents,
          .channels = s.channels,
          .states = s.states,
          .stride = s.channels};
}

// to [tokens, states] = sum over blocks, in order, of parts [blocks, tokens * states].
void add_blocks(Exec& exec, const Tensor& parts, View to) {
  const Tensor total = exec.scratch({to.rows(), to.width()});
  fill(exec, total, 0.0f);
  add_partials(exec, parts, host<float>(total));
  copy(exec, total, to);
}

}  // namespace

void selective_scan_forward(Exec& exec, const SelectiveScan& in, ConstView initial_state, View out,
                            View final_state) {
  const Selective whole(exec, in, initial_state);
  scan_forward(exec, whole.scan, whole.s, in.documents, out, final_state);
}

void selective_scan_backward(Exec& exec, const SelectiveScan& in, ConstView initial_state,
                             ConstView d_out, ConstView d_final_state,
                             const SelectiveScanGradients& gradients) {
  const Selective whole(exec, in, initial_state);
  const Sizes& s = whole.s;
  const std::vector<Run> runs = runs_of(in.documents);
  const Sums sums(exec, s, static_cast<int64_t>(runs.size()), true);
  scan_backward(exec, whole.scan,
                {.dy = rows_of(d_out),
                 .d_final = numbers_of(d_final_state),
                 .dx = rows_of(gradients.dx),
                 .d_dt = rows_of(gradients.d_dt),
                 .d_initial = numbers_of(gradients.d_initial_state)},
                s, runs, sums);
  add_blocks(exec, sums.b, gradients.db);
  add_blocks(exec, sums.c, gradients.dc);
  add_partials(exec, sums.a_log, host<float>(gradients.d_a_log));
  if (given(in.skip)) {
    add_partials(exec, sums.skip, host<float>(gradients.d_skip));
  }
}

void static_scan_forward(Exec& exec, const StaticScan& in, ConstView initial_state, View out,
                         View final_state) {
  const Sizes s = sizes_of(in);
  scan_forward(exec, static_scan_of(in, s, initial_state), s, in.documents, out, final_state);
}

void static_scan_backward(Exec& exec, const StaticScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const StaticScanGradients& gradients) {
  const Sizes s = sizes_of(in);
  const std::vector<Run> runs = runs_of(in.documents);
  const Sums sums(exec, s, static_cast<int64_t>(runs.size()), false);
  scan_backward(exec, static_scan_of(in, s, initial_state),
                {.dy = rows_of(d_out),
                 .d_final = numbers_of(d_final_state),
                 .dx = rows_of(gradients.dx),
                 .d_initial = numbers_of(gradients.d_initial_state)},
                s, runs, sums);
  add_partials(exec, sums.log_dt, host<float>(gradients.d_log_dt));
  add_partials(exec, sums.a_log, host<float>(gradients.d_a_log));
  add_partials(exec, sums.b, host<float>(gradients.db));
  add_partials(exec, sums.c, host<float>(gradients.dc));
  if (given(in.skip)) {
    add_partials(exec, sums.skip, host<float>(gradients.d_skip));
  }
}

}  // namespace weft::kernels::cpu
