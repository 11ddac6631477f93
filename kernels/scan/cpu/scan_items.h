#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "core/host_access.h"
#include "core/memory/exec.h"
#include "kernels/checks.h"
#include "kernels/tile/heads.h"

// The driver of scans over heads on the CPU: which tasks there are, what each of them sees of the
// tensors of a call, and where it keeps what backward needs.
namespace weft::kernels::cpu {

// One head of one document, or of a piece of a long one.
struct ScanItem {
  int64_t index = 0;  // among all items
  int64_t document = 0, head = 0;
  int64_t state = 0;  // its place in tensors [documents, heads, ...]
  tile::Tokens tokens = {};
  bool first = true, last = true;  // piece of its document

  // Columns of this head, or of the head that it shares them with. An absent matrix has a width all
  // the same, and so has one without tokens.
  template <class V>
  auto rows(const V& x, int64_t width) const {
    return rows(x, head, width);
  }
  template <class V>
  auto rows(const V& x, int64_t of_head, int64_t width) const {
    auto view = tile::head_of(x, tokens, of_head, width);
    view.columns = width;
    return view;
  }
  template <class V>
  auto column(const V& x) const {
    return tile::column_of(x, tokens, head);
  }
};

// State number `index` of f32 [n, rows, columns]; empty when there are none.
template <class Byte>
tile::MatrixView<Byte> state_of(const BasicView<Byte>& states, int64_t index, int64_t rows,
                                int64_t columns) {
  if (nothing_in(states)) return {};
  return {host<float>(states) + index * rows * columns, columns, rows, columns, DType::kF32};
}
// `width` numbers of f32 [n, width]; empty when there are none.
template <class Byte>
auto numbers_of(const BasicView<Byte>& x, int64_t index, int64_t width) {
  using Float = std::remove_pointer_t<decltype(host<float>(x))>;
  if (!given(x)) return tile::VectorView<Float>{};
  return tile::VectorView<Float>{host<float>(x) + index * width, 1};
}

enum class LongDocuments : uint8_t { kWhole, kInPieces };

// The items of a call. Pieces of a document and head follow each other.
class ScanItems {
 public:
  ScanItems(std::span<const int32_t> documents, int64_t heads,
            LongDocuments cutting = LongDocuments::kWhole) {
    const auto count = static_cast<int64_t>(documents.size()) - 1;
    const bool cut = cutting == LongDocuments::kInPieces && count * heads < kEnoughItems;
    for (int64_t d = 0; d < count; ++d) {
      const int64_t begin = documents[d], end = documents[d + 1];
      const int64_t piece = cut && end - begin >= 2 * kPiece ? kPiece : end - begin;
      for (int64_t h = 0; h < heads; ++h) add(d, h, d * heads + h, begin, end, piece);
    }
  }

  int64_t count() const { return static_cast<int64_t>(items_.size()); }
  const ScanItem& operator[](int64_t i) const { return items_[static_cast<size_t>(i)]; }
  int64_t longest() const { return longest_; }  // tokens
  bool in_pieces() const { return in_pieces_; }

  // task(item, scratch of the thread) for all items.
  template <class Task>
  void run(Exec& exec, int64_t scratch_floats, Task task) const {
    const int64_t floats = (scratch_floats + 15) / 16 * 16;
    const Tensor scratch = exec.scratch({exec.threads.size(), floats});
    exec.threads.run_on(count(), [&](int64_t i, int thread) {
      task((*this)[i], host<float>(scratch) + thread * floats);
    });
  }

 private:
  // Pieces cost another pass over keys and values (and queries and output gradients, backward), a
  // good third of the time. The cut depends on shapes alone, so results do not depend on the
  // threads.
  static constexpr int64_t kEnoughItems = 4, kPiece = 1024;

  void add(int64_t document, int64_t head, int64_t state, int64_t begin, int64_t end,
           int64_t piece) {
    int64_t at = begin;
    do {
      const int64_t tokens = std::min(piece, end - at);
      items_.push_back(
          {count(), document, head, state, {at, tokens}, at == begin, at + tokens == end});
      in_pieces_ = in_pieces_ || at != begin;
      longest_ = std::max(longest_, tokens);
      at += tokens;
    } while (at < end);
  }

  std::vector<ScanItem> items_;
  int64_t longest_ = 0;
  bool in_pieces_ = false;
};

// Where items keep what forward leaves for backward, one after the other: f32 [floats()].
class KeptOffsets {
 public:
  // floats_of(item): how many numbers an item keeps.
  template <class Count>
  KeptOffsets(const char* kernel, const ScanItems& items, Count floats_of) : kernel_(kernel) {
    at_.push_back(0);
    for (int64_t i = 0; i < items.count(); ++i) at_.push_back(at_.back() + floats_of(items[i]));
  }
  int64_t floats() const { return at_.back(); }

  // Null where nothing is kept.
  template <class Byte>
  auto of(const BasicView<Byte>& kept, const ScanItem& item) const {
    using Pointer = decltype(host<float>(kept));
    if (!given(kept)) return Pointer{nullptr};
    WEFT_CHECK(kept.dtype == DType::kF32 && kept.contiguous() && kept.shape.elements() == floats(),
               "{}: kept states are {} {}, expected f32 [{}]", kernel_, name_of(kept.dtype),
               kept.shape, floats());
    return host<float>(kept) + at_[static_cast<size_t>(item.index)];
  }

 private:
  const char* kernel_;
  std::vector<int64_t> at_;
};

// Offsets of scans whose items keep as much as their length and the widths of heads say.
template <class Table, class Scan>
KeptOffsets kept_by_length(const Table& table, const Scan& in, const ScanItems& items) {
  return {in.kName, items,
          [&](const ScanItem& item) { return table.kept(item.tokens.count, in.key, in.value); }};
}

// Forward of scans with one state: task_of(item) for all items.
template <class Table, class Scan, class TaskOf>
void forward_heads(Exec& exec, const Table& table, const Scan& in, View out, View final_state,
                   View kept, TaskOf task_of) {
  const ScanItems items(in.documents, in.heads);
  const KeptOffsets offsets = kept_by_length(table, in, items);
  items.run(exec, table.forward_scratch(in.key, in.value),
            [&](const ScanItem& item, float* scratch) {
              table.forward(task_of(item),
                            {.out = item.rows(out, in.value),
                             .final_state = state_of(final_state, item.state, in.key, in.value),
                             .kept = offsets.of(kept, item)},
                            scratch);
            });
}

// The gradient of columns that groups of heads share: every head writes its own to `view`, and
// sum() adds them up in order.
class SharedGradient {
 public:
  SharedGradient(Exec& exec, View to, int64_t heads, int64_t shared, int64_t width)
      : view(to), to_(to), group_(heads / shared), width_(width) {
    if (group_ == 1 || !given(to)) return;
    own_ = exec.scratch({to.rows(), heads * width});
    view = own_.view();
  }
  void sum(Exec& exec) const {
    if (own_.defined()) tile::sum_groups(exec, view, to_, group_, width_);
  }

  View view;

 private:
  View to_;
  int64_t group_, width_;
  Tensor own_;
};

}  // namespace weft::kernels::cpu
