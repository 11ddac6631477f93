#include "kernels/sequence/cpu/conv1d.h"

#include <vector>

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/elementwise.h"
#include "kernels/sequence/cpu/history.h"
#include "kernels/sequence/cpu/isa/conv1d.h"

namespace weft::kernels::cpu {
namespace {

// Boxes of backward, 64 rows by 256 channels: the gradient before the activation of one stays in a
// cache, and few of its rows are computed a second time by the box above.
constexpr int64_t kRows = 64, kColumns = 256;

Box box_of(int64_t row_block, int64_t column_block, Extent extent) {
  const int64_t top = row_block * kRows, left = column_block * kColumns;
  return {top, std::min(extent.rows, top + kRows), left, std::min(extent.width, left + kColumns)};
}
int64_t blocks_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

struct Places {
  std::vector<int32_t> before, after, document;
};

Places places_in(std::span<const int32_t> documents, int64_t tokens) {
  const std::vector<int32_t> numbers(static_cast<size_t>(tokens));
  Places places{numbers, numbers, numbers};
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    for (int32_t t = documents[d]; t < documents[d + 1]; ++t) {
      places.before[static_cast<size_t>(t)] = t - documents[d];
      places.after[static_cast<size_t>(t)] = documents[d + 1] - 1 - t;
      places.document[static_cast<size_t>(t)] = static_cast<int32_t>(d);
    }
  }
  return places;
}

// [channels, taps] and [channels] -> [taps + 1, channels]
Tensor transposed(Exec& exec, const ShortConv& conv, ConstView weight, ConstView bias,
                  int64_t channels) {
  const int64_t taps = conv.taps;
  const float* w = host<float>(weight);
  const float* b = host<float>(bias);
  const Tensor out = exec.scratch({taps + 1, channels});
  float* rows = host<float>(out);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < taps; ++j) rows[j * channels + c] = w[c * taps + j];
    rows[taps * channels + c] = b == nullptr ? 0.0f : b[c];
  }
  return out;
}

ConvArgs args_of(const ShortConv& conv, ConstView x, const Tensor& weight, const Places& places) {
  ConvArgs args{};
  args.x = rows_of(x);
  args.weight = host<float>(weight);
  args.before = places.before.data();
  args.after = places.after.data();
  args.document = places.document.data();
  args.tokens = x.rows();
  args.channels = x.width();
  args.taps = conv.taps;
  args.silu = conv.activation == Activation::kSilu;
  return args;
}

HistoryShape history_of(const ShortConv& conv, ConstView x) {
  return {conv.documents, conv.taps - 1, x.width()};
}

// d_weight += sums over rows of the gradients; dx of all rows.
void tokens_backward(Exec& exec, const ConvArgs& args, View d_weight, View d_bias) {
  const Extent extent{args.tokens, args.channels};
  const int64_t channels = args.channels, taps = args.taps;
  const ConvTable& table = table_of<ConvTable>(exec.isa);
  const int64_t across = blocks_of(channels, kColumns), down = blocks_of(extent.rows, kRows);
  const int64_t scratch_size = (kRows + taps - 1) * std::min(channels, kColumns);
  const Tensor scratch = exec.scratch({exec.threads.size(), scratch_size});
  const Tensor partial = exec.scratch({down, (taps + 1) * channels});
  exec.threads.run_on(down * across, [&](int64_t i, int thread) {
    table.backward(args, box_of(i / across, i % across, extent),
                   host<float>(partial) + i / across * (taps + 1) * channels,
                   host<float>(scratch) + thread * scratch_size);
  });
  const Tensor sum = Tensor::zeros(exec.pool, {taps + 1, channels}, DType::kF32, Label::kScratch);
  add_partials(exec, partial, host<float>(sum));
  float* weights = host<float>(d_weight);
  float* biases = host<float>(d_bias);
  const float* sums = host<float>(sum);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < taps; ++j) weights[c * taps + j] += sums[j * channels + c];
    if (biases != nullptr) biases[c] += sums[taps * channels + c];
  }
}

void history_backward(Exec& exec, const ConvArgs& args, std::span<const int32_t> documents) {
  const ConvTable& table = table_of<ConvTable>(exec.isa);
  const int64_t across = blocks_of(args.channels, kColumns);
  const int64_t scratch_size = (args.taps - 1) * std::min(args.channels, kColumns);
  const Tensor scratch = exec.scratch({exec.threads.size(), scratch_size});
  const auto count = static_cast<int64_t>(documents.size()) - 1;
  exec.threads.run_on(count * across, [&](int64_t i, int thread) {
    const int64_t d = i / across, left = i % across * kColumns;
    table.history_backward(args, {d, documents[d], documents[d + 1] - documents[d]}, left,
                           std::min(args.channels, left + kColumns),
                           host<float>(scratch) + thread * scratch_size);
  });
}

}  // namespace

void short_conv_forward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                        ConstView bias, View y, const ConvHistory& history) {
  const Extent extent{x.rows(), x.width()};
  const HistoryShape shape = history_of(conv, x);
  if (extent.rows > 0) {
    const Places places = places_in(conv.documents, extent.rows);
    const Tensor rows = transposed(exec, conv, weight, bias, extent.width);
    ConvArgs args = args_of(conv, x, rows, places);
    args.y = rows_of(y);
    Tensor edges;
    if (!nothing_in(history.entering)) edges = history_edges(exec, shape, history.entering, x);
    args.edges = edges.defined() ? host<float>(edges) : nullptr;
    const ConvTable& table = table_of<ConvTable>(exec.isa);
    const int64_t across = blocks_of(extent.width, kColumns);
    exec.threads.run(blocks_of(extent.rows, kRows) * across, [&](int64_t i) {
      table.forward(args, box_of(i / across, i % across, extent));
    });
  }
  leave_history(exec, shape, history.entering, x, history.leaving);
}

void short_conv_backward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                         ConstView bias, ConstView dy, View dx, View d_weight, View d_bias,
                         const ConvHistoryGradients& history) {
  const HistoryShape shape = history_of(conv, x);
  const Places places = places_in(conv.documents, x.rows());
  const Tensor rows = transposed(exec, conv, weight, bias, x.width());
  ConvArgs args = args_of(conv, x, rows, places);
  args.dy = rows_of(dy);
  args.dx = rows_of(dx);
  Tensor edges, d_leaving;
  if (!nothing_in(history.entering)) {
    edges = history_edges(exec, shape, history.entering, x);
    args.edges = host<float>(edges);
  }
  if (!nothing_in(history.d_leaving)) {
    // A copy, since d_entering may be the same bytes.
    d_leaving = exec.scratch({shape.count() * shape.rows, shape.width});
    copy(exec, history.d_leaving, d_leaving);
    args.d_leaving = host<float>(d_leaving);
  }
  if (x.rows() > 0) tokens_backward(exec, args, d_weight, d_bias);
  if (nothing_in(history.d_entering)) return;
  args.d_entering = rows_of(history.d_entering);
  history_backward(exec, args, conv.documents);
}

}  // namespace weft::kernels::cpu
