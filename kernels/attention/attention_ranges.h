#pragma once

#include "kernels/attention/attention.h"
#include "kernels/tile/heads.h"

namespace weft::kernels {

// Where a document's queries and keys lie.
struct AttentionRange {
  tile::Tokens queries;  // rows of q
  tile::Tokens keys;     // rows of k, v and log_forget
  int64_t start;         // of the first query among the keys

  // The keys that some query could see; those after them are not read.
  tile::Tokens seen() const { return {keys.begin, queries.count == 0 ? 0 : start + queries.count}; }
};

inline int64_t documents_of(const Attention& in) {
  return static_cast<int64_t>(in.documents.size()) - 1;
}

inline AttentionRange range_of(const Attention& in, int64_t document) {
  const auto rows = [&](std::span<const int32_t> offsets) {
    return tile::Tokens{offsets[document], offsets[document + 1] - offsets[document]};
  };
  AttentionRange range{rows(in.documents),
                       rows(in.key_documents.empty() ? in.documents : in.key_documents), 0};
  range.start = in.query_start.empty() ? range.keys.count - range.queries.count
                                       : int64_t{in.query_start[document]};
  return range;
}

}  // namespace weft::kernels
