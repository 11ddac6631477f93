#include "layers/recurrence/key_rows.h"

#include <algorithm>

#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

constexpr int64_t kLeastRoom = 64;

// Tensors [documents, room, width] as rows.
Tensor flat(const Tensor& t) { return t.reshaped({t.shape()[0] * t.shape()[1], t.shape()[2]}); }

void copy_rows(Exec& exec, ConstView from, View to) {
  if (from.rows() > 0) kernels::copy(exec, from, to);
}

int64_t count_of(const Sequence& sequence, int64_t d) {
  const auto at = static_cast<size_t>(d);
  return sequence.documents[at + 1] - sequence.documents[at];
}

std::vector<int32_t> counts_in(Exec& exec, const State& cache, int64_t documents) {
  if (cache.empty()) return std::vector<int32_t>(static_cast<size_t>(documents), 0);
  return counts_of(exec, cache);
}

// The last used[d] - dropped[d] rows of each document, first in a buffer of their own.
Tensor moved(Exec& exec, const Tensor& old, int64_t room, const std::vector<int32_t>& used,
             const std::vector<int32_t>& dropped) {
  const Shape& s = old.shape();
  const Tensor to = exec.empty({s[0], room, s[2]}, old.dtype());
  for (int64_t d = 0; d < s[0]; ++d) {
    const int64_t gone = dropped[static_cast<size_t>(d)],
                  left = used[static_cast<size_t>(d)] - gone;
    copy_rows(exec, flat(old).view().row_range(d * s[1] + gone, left),
              flat(to).view().row_range(d * room, left));
  }
  return to;
}

// Rows that a window does not reach any more, by document.
std::vector<int32_t> out_of_reach(const std::vector<int32_t>& used, int64_t window) {
  std::vector<int32_t> gone(used.size(), 0);
  for (size_t d = 0; d < used.size() && window > 0; ++d) {
    gone[d] = std::max<int32_t>(0, used[d] - static_cast<int32_t>(window - 1));
  }
  return gone;
}

State moved(Exec& exec, const State& cache, int64_t room, const std::vector<int32_t>& used,
            const std::vector<int32_t>& dropped) {
  State to;
  std::vector<int64_t> counts;
  for (size_t d = 0; d < used.size(); ++d) counts.push_back(used[d] - dropped[d]);
  for (size_t i = 0; i + 1 < cache.size(); ++i) {
    to.push_back(moved(exec, cache[i], room, used, dropped));
  }
  to.push_back(row_counts(exec, counts));
  return to;
}

// Makes room for the span's rows, and says what was dropped for it.
void grow(Exec& exec, const std::vector<ConstView>& kinds, const Sequence& sequence, int64_t window,
          State& cache, KeyRows& keys) {
  const int64_t documents = sequence.count();
  const std::vector<int32_t> used = counts_in(exec, cache, documents),
                             gone = out_of_reach(used, window);
  int64_t needed = 0, in_reach = 0;
  for (int64_t d = 0; d < documents; ++d) {
    const auto at = static_cast<size_t>(d);
    needed = std::max(needed, used[at] + count_of(sequence, d));
    in_reach = std::max(in_reach, used[at] - gone[at] + count_of(sequence, d));
  }
  if (cache.empty()) {
    const int64_t room = std::max(needed, kLeastRoom);
    for (const ConstView& kind : kinds) {
      cache.push_back(exec.empty({documents, room, kind.width()}, kind.dtype));
    }
    cache.push_back(row_counts(exec, std::vector<int64_t>(used.size(), 0)));
  } else if (needed > cache[0].shape()[1]) {
    keys.dropped = gone;
    cache = moved(exec, cache, 2 * in_reach, used, gone);
  }
}

// Where a document's rows are among all of them.
struct DocumentRows {
  int64_t first, before, own;  // first row, rows before the span's, the span's
  DocumentRows(const KeyRows& keys, const Sequence& sequence, int64_t d)
      : first(keys.own() ? sequence.documents[static_cast<size_t>(d)]
                         : keys.documents[static_cast<size_t>(d)]),
        before(keys.own() ? 0 : keys.query_start[static_cast<size_t>(d)]),
        own(count_of(sequence, d)) {}
  View all(const Tensor& t) const { return t.view().row_range(first, before + own); }
  View entering(const Tensor& t) const { return t.view().row_range(first, before); }
  View of_span(const Tensor& t) const { return t.view().row_range(first + before, own); }
};

}  // namespace

KeyRows append_to_cache(Exec& exec, const std::vector<ConstView>& kinds, const Sequence& sequence,
                        int64_t window, State& cache) {
  const int64_t documents = sequence.count();
  KeyRows keys;
  keys.dropped.assign(static_cast<size_t>(documents), 0);
  grow(exec, kinds, sequence, window, cache, keys);
  const int64_t room = cache[0].shape()[1];
  keys.query_start = counts_in(exec, cache, documents);
  std::vector<int32_t> used = keys.query_start;
  for (int64_t d = 0; d <= documents; ++d) {
    keys.documents.push_back(static_cast<int32_t>(d * room));
  }
  for (const Tensor& t : State(cache.begin(), cache.end() - 1)) keys.rows.push_back(flat(t));
  for (int64_t d = 0; d < documents; ++d) {
    const DocumentRows place(keys, sequence, d);
    used[static_cast<size_t>(d)] += static_cast<int32_t>(place.own);
    for (size_t i = 0; i < kinds.size(); ++i) {
      copy_rows(exec, kinds[i].row_range(sequence.documents[static_cast<size_t>(d)], place.own),
                place.of_span(keys.rows[i]));
    }
  }
  keys.left_out.assign(static_cast<size_t>(documents), 0);
  if (window > 0 && room > std::max(kLeastRoom, 4 * window)) {
    keys.left_out = out_of_reach(used, window);
    cache = moved(exec, cache, std::max(kLeastRoom, 2 * window), used, keys.left_out);
  } else {
    cache.back() = row_counts(exec, {used.begin(), used.end()});
  }
  return keys;
}

State cached_rows(Exec& exec, const State& cache, int64_t window) {
  if (cache.empty()) return {};
  const std::vector<int32_t> used = counts_in(exec, cache, cache.back().elements());
  const std::vector<int32_t> gone = out_of_reach(used, window);
  int64_t room = 0;
  for (size_t d = 0; d < used.size(); ++d) room = std::max<int64_t>(room, used[d] - gone[d]);
  return moved(exec, cache, room, used, gone);
}

KeyRows append_to_chains(Exec& exec, const std::vector<ConstView>& kinds, const Sequence& sequence,
                         const State& entering) {
  KeyRows keys;
  keys.query_start.assign(static_cast<size_t>(sequence.count()), 0);
  const std::vector<int32_t> counts = counts_of(exec, entering);
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    keys.query_start[static_cast<size_t>(sequence.chains[c].first)] = counts[c];
  }
  if (std::all_of(keys.query_start.begin(), keys.query_start.end(),
                  [](int32_t n) { return n == 0; })) {
    return {};
  }
  int64_t rows = 0;
  for (int64_t d = 0; d < sequence.count(); ++d) {
    keys.documents.push_back(static_cast<int32_t>(rows));
    rows += keys.query_start[static_cast<size_t>(d)] + count_of(sequence, d);
  }
  keys.documents.push_back(static_cast<int32_t>(rows));
  for (const ConstView& kind : kinds) {
    keys.rows.push_back(exec.empty({rows, kind.width()}, kind.dtype));
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Tensor& all = keys.rows[i];
    for (int64_t d = 0; d < sequence.count(); ++d) {
      const DocumentRows place(keys, sequence, d);
      copy_rows(exec, kinds[i].row_range(sequence.documents[static_cast<size_t>(d)], place.own),
                place.of_span(all));
    }
    for (size_t c = 0; c < sequence.chains.size(); ++c) {
      const DocumentRows place(keys, sequence, sequence.chains[c].first);
      const int64_t room = entering[i].shape()[1];
      copy_rows(exec,
                flat(entering[i]).view().row_range(static_cast<int64_t>(c) * room, place.before),
                place.entering(all));
    }
  }
  return keys;
}

void cache_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence, const State& d,
                     State& d_cache) {
  int64_t most = 0;
  for (size_t n = 0; n < keys.query_start.size(); ++n) {
    most = std::max<int64_t>(most, keys.query_start[n] + keys.dropped[n]);
  }
  State entering;
  for (size_t i = 0; i < d.size(); ++i) {
    const Tensor to = exec.zeros({sequence.count(), most, d[i].shape().back()});
    for (int64_t n = 0; n < sequence.count(); ++n) {
      const DocumentRows place(keys, sequence, n);
      const int64_t gone = keys.dropped[static_cast<size_t>(n)],
                    out = keys.left_out[static_cast<size_t>(n)],
                    kept = place.before + place.own - out;
      if (!d_cache.empty() && kept > 0) {
        const View rows = place.all(d[i]).row_range(out, kept);
        const int64_t room = d_cache[i].shape()[1];
        kernels::add(exec, rows, flat(d_cache[i]).view().row_range(n * room, kept), rows);
      }
      copy_rows(exec, place.entering(d[i]),
                flat(to).view().row_range(n * most + gone, place.before));
    }
    entering.push_back(to);
  }
  d_cache = std::move(entering);
}

State chain_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence, const State& d) {
  std::vector<int64_t> counts;
  for (const Chain& chain : sequence.chains) {
    counts.push_back(DocumentRows(keys, sequence, chain.first).before);
  }
  const int64_t room = *std::max_element(counts.begin(), counts.end());
  State chains;
  for (const Tensor& t : d) {
    const Tensor to =
        exec.zeros({static_cast<int64_t>(counts.size()), room, t.shape().back()}, t.dtype());
    for (size_t c = 0; c < counts.size(); ++c) {
      copy_rows(exec, DocumentRows(keys, sequence, sequence.chains[c].first).entering(t),
                flat(to).view().row_range(static_cast<int64_t>(c) * room, counts[c]));
    }
    chains.push_back(to);
  }
  chains.push_back(row_counts(exec, counts));
  return chains;
}

void add_chain_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence,
                         const State& received, const State& d) {
  const std::vector<int32_t> counts = counts_of(exec, received);
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    const int64_t count = counts[c];
    if (count == 0) continue;
    const DocumentRows place(keys, sequence, sequence.chains[c].last);
    for (size_t i = 0; i < d.size(); ++i) {
      const View own = place.of_span(d[i]).row_range(place.own - count, count);
      const int64_t room = received[i].shape()[1];
      kernels::add(exec, own,
                   flat(received[i]).view().row_range(static_cast<int64_t>(c) * room, count), own);
    }
  }
}

void own_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence, const State& d,
                   const std::vector<View>& gradients) {
  for (int64_t n = 0; n < sequence.count(); ++n) {
    const DocumentRows place(keys, sequence, n);
    for (size_t i = 0; i < d.size(); ++i) {
      copy_rows(exec, place.of_span(d[i]),
                gradients[i].row_range(sequence.documents[static_cast<size_t>(n)], place.own));
    }
  }
}

}  // namespace weft
