#include "kernels/scan/elementwise_scan.h"

#include <algorithm>
#include <vector>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/rows/elementwise.h"
#include "kernels/scan/cpu/isa/elementwise_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

constexpr auto kOptional = Presence::kOptional;
constexpr auto kAlways = Presence::kAlways;

template <class Scan>
int64_t channels(const Scan& in) {
  return in.x.width();
}
template <class Scan>
int64_t states(const Scan& in) {
  return in.a_log.width();
}
template <class Scan>
int64_t numbers(const Scan& in) {
  return channels(in) * states(in);
}
constexpr ScanField<SelectiveScan> kSelective[] = {
    {"x", &SelectiveScan::x, &SelectiveScanGradients::dx, channels, FieldType::kReal},
    {"dt", &SelectiveScan::dt, &SelectiveScanGradients::d_dt, channels, FieldType::kF32},
    {"b", &SelectiveScan::b, &SelectiveScanGradients::db, states, FieldType::kReal},
    {"c", &SelectiveScan::c, &SelectiveScanGradients::dc, states, FieldType::kReal},
    {"a_log", &SelectiveScan::a_log, &SelectiveScanGradients::d_a_log, numbers, FieldType::kF32,
     kAlways, FieldRows::kNone},
    {"skip", &SelectiveScan::skip, &SelectiveScanGradients::d_skip, channels, FieldType::kF32,
     kOptional, FieldRows::kNone},
};
constexpr ScanField<StaticScan> kStatic[] = {
    {"x", &StaticScan::x, &StaticScanGradients::dx, channels, FieldType::kReal},
    {"log_dt", &StaticScan::log_dt, &StaticScanGradients::d_log_dt, channels, FieldType::kF32,
     kAlways, FieldRows::kNone},
    {"a_log", &StaticScan::a_log, &StaticScanGradients::d_a_log, numbers, FieldType::kF32, kAlways,
     FieldRows::kNone},
    {"b", &StaticScan::b, &StaticScanGradients::db, numbers, FieldType::kF32, kAlways,
     FieldRows::kNone},
    {"c", &StaticScan::c, &StaticScanGradients::dc, numbers, FieldType::kF32, kAlways,
     FieldRows::kNone},
    {"skip", &StaticScan::skip, &StaticScanGradients::d_skip, channels, FieldType::kF32, kOptional,
     FieldRows::kNone},
};

struct Sizes {
  int64_t tokens, channels, states, documents;
};

Sizes sizes_of(ConstView x, ConstView a_log, std::span<const int32_t> documents) {
  check_real(x, "elementwise_scan: x");
  WEFT_CHECK(a_log.width() > 0 && a_log.rows() == x.width(),
             "elementwise_scan: a_log is {}, x has {} channels", a_log.shape, x.width());
  WEFT_CHECK(!documents.empty() && documents.front() == 0 && documents.back() == x.rows() &&
                 std::is_sorted(documents.begin(), documents.end()),
             "elementwise_scan: document offsets must rise from 0 to {} tokens", x.rows());
  return {x.rows(), x.width(), a_log.width(), static_cast<int64_t>(documents.size()) - 1};
}

// The numbers of a parameter or state, null when not given.
template <class V>
auto optional(const V& x, int64_t count, const char* name) {
  using Float = decltype(host<float>(x));
  return given(x) ? vector_of<float>(x, count, name) : Float{nullptr};
}
template <class V>
auto states_of(const V& x, const Sizes& s, const char* name) {
  return optional(x, s.documents * s.states * s.channels, name);
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
  if (given(out)) check_matrix(out, s.tokens, s.channels, "elementwise_scan: out");
  const ChannelScanTable& table = table_of<ChannelScanTable>(exec.isa);
  float* final = states_of(final_state, s, "elementwise_scan: final_state");
  for_pieces(exec, s, runs_of(documents), table.forward_scratch(s.states),
             [&](const Piece& p, float* scratch) {
               const int64_t state = p.documents.first * s.states * s.channels + p.channel();
               table.forward(piece_of(whole, p, s),
                             {from_column(rows_of(out), p.channel()), advanced(final, state)},
                             scratch);
             });
}

// What pieces leave behind and what is then added up in order: gradients of numbers per channel,
// one row per run; of numbers per token (selective), one matrix per block.
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

void check_back(const Sizes& s, ConstView d_out, View dx, ConstView skip, View d_skip) {
  check_matrix(d_out, s.tokens, s.channels, "elementwise_scan: d_out");
  check_matrix(dx, s.tokens, s.channels, "elementwise_scan: dx");
  WEFT_CHECK(given(skip) == given(d_skip),
             "elementwise_scan: d_skip is wanted exactly when there is a skip");
}

void check_step(ConstView dt, const Sizes& s, const char* name) {
  check_matrix(dt, s.tokens, s.channels, name);
  WEFT_CHECK(dt.dtype == DType::kF32, "{} is {}, not f32", name, name_of(dt.dtype));
}

// A selective scan with b and c as contiguous f32, which every block of channels reads again.
struct Selective {
  Selective(Exec& exec, const SelectiveScan& in, ConstView initial_state)
      : s(sizes_of(in.x, in.a_log, in.documents)), b(in.b), c(in.c) {
    check_step(in.dt, s, "selective_scan: dt");
    check_matrix(in.b, s.tokens, s.states, "selective_scan: b");
    check_matrix(in.c, s.tokens, s.states, "selective_scan: c");
    b = plain(exec, in.b, b_copy), c = plain(exec, in.c, c_copy);
    scan = {.x = rows_of(in.x),
            .dt = rows_of(in.dt),
            .log_dt = nullptr,
            .b = host<float>(b),
            .c = host<float>(c),
            .a_log = vector_of<float>(in.a_log, s.channels * s.states, "selective_scan: a_log"),
            .skip = optional(in.skip, s.channels, "selective_scan: skip"),
            .initial = states_of(initial_state, s, "selective_scan: initial_state"),
            .offsets = in.documents.data(),
            .documents = s.documents,
            .channels = s.channels,
            .states = s.states,
            .stride = s.channels};
  }
  static ConstView plain(Exec& exec, ConstView x, Tensor& copy) {
    if (x.dtype == DType::kF32 && x.contiguous()) return x;
    copy = exec.scratch(x.shape);
    kernels::copy(exec, x, copy);
    return copy;
  }

  Sizes s;
  Tensor b_copy, c_copy;
  ConstView b, c;
  ChannelScan scan;
};

ChannelScan static_scan_of(const StaticScan& in, const Sizes& s, ConstView initial_state) {
  const int64_t numbers = s.channels * s.states;
  return {.x = rows_of(in.x),
          .dt = {nullptr, 0, DType::kF32},
          .log_dt = vector_of<float>(in.log_dt, s.channels, "static_scan: log_dt"),
          .b = vector_of<float>(in.b, numbers, "static_scan: b"),
          .c = vector_of<float>(in.c, numbers, "static_scan: c"),
          .a_log = vector_of<float>(in.a_log, numbers, "static_scan: a_log"),
          .skip = optional(in.skip, s.channels, "static_scan: skip"),
          .initial = states_of(initial_state, s, "static_scan: initial_state"),
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

std::span<const ScanField<SelectiveScan>> SelectiveScan::fields() { return kSelective; }
std::span<const ScanField<StaticScan>> StaticScan::fields() { return kStatic; }

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
  check_back(s, d_out, gradients.dx, in.skip, gradients.d_skip);
  check_step(gradients.d_dt, s, "selective_scan: d_dt");
  check_matrix(gradients.db, s.tokens, s.states, "selective_scan: db");
  check_matrix(gradients.dc, s.tokens, s.states, "selective_scan: dc");
  const std::vector<Run> runs = runs_of(in.documents);
  const Sums sums(exec, s, static_cast<int64_t>(runs.size()), true);
  scan_backward(
      exec, whole.scan,
      {.dy = rows_of(d_out),
       .d_final = states_of(d_final_state, s, "selective_scan: d_final_state"),
       .dx = rows_of(gradients.dx),
       .d_dt = rows_of(gradients.d_dt),
       .d_initial = states_of(gradients.d_initial_state, s, "selective_scan: d_initial_state")},
      s, runs, sums);
  add_blocks(exec, sums.b, gradients.db);
  add_blocks(exec, sums.c, gradients.dc);
  const int64_t numbers = s.channels * s.states;
  add_partials(exec, sums.a_log,
               vector_of<float>(gradients.d_a_log, numbers, "selective_scan: d_a_log"));
  if (given(in.skip)) {
    add_partials(exec, sums.skip,
                 vector_of<float>(gradients.d_skip, s.channels, "selective_scan: d_skip"));
  }
}

void static_scan_forward(Exec& exec, const StaticScan& in, ConstView initial_state, View out,
                         View final_state) {
  const Sizes s = sizes_of(in.x, in.a_log, in.documents);
  scan_forward(exec, static_scan_of(in, s, initial_state), s, in.documents, out, final_state);
}

void static_scan_backward(Exec& exec, const StaticScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const StaticScanGradients& gradients) {
  const Sizes s = sizes_of(in.x, in.a_log, in.documents);
  check_back(s, d_out, gradients.dx, in.skip, gradients.d_skip);
  const std::vector<Run> runs = runs_of(in.documents);
  const Sums sums(exec, s, static_cast<int64_t>(runs.size()), false);
  scan_backward(
      exec, static_scan_of(in, s, initial_state),
      {.dy = rows_of(d_out),
       .d_final = states_of(d_final_state, s, "static_scan: d_final_state"),
       .dx = rows_of(gradients.dx),
       .d_initial = states_of(gradients.d_initial_state, s, "static_scan: d_initial_state")},
      s, runs, sums);
  const int64_t numbers = s.channels * s.states;
  add_partials(exec, sums.log_dt,
               vector_of<float>(gradients.d_log_dt, s.channels, "static_scan: d_log_dt"));
  add_partials(exec, sums.a_log,
               vector_of<float>(gradients.d_a_log, numbers, "static_scan: d_a_log"));
  add_partials(exec, sums.b, vector_of<float>(gradients.db, numbers, "static_scan: db"));
  add_partials(exec, sums.c, vector_of<float>(gradients.dc, numbers, "static_scan: dc"));
  if (given(in.skip)) {
    add_partials(exec, sums.skip,
                 vector_of<float>(gradients.d_skip, s.channels, "static_scan: d_skip"));
  }
}

}  // namespace weft::kernels
