#include "layers/context/sequence.h"

#include <algorithm>

namespace weft {
namespace {

void check_offsets(const std::vector<int32_t>& documents) {
  WEFT_CHECK(documents.size() >= 2 && documents.front() == 0 &&
                 std::is_sorted(documents.begin(), documents.end()),
             "{} document offsets that do not rise from 0", documents.size());
}

}  // namespace

Sequence make_sequence(std::vector<int32_t> documents) {
  return make_sequence(std::move(documents), {});
}

Sequence make_sequence(std::vector<int32_t> documents, const std::vector<int32_t>& starts) {
  check_offsets(documents);
  WEFT_CHECK(starts.empty() || starts.size() + 1 == documents.size(), "{} starts for {} documents",
             starts.size(), documents.size() - 1);
  Sequence sequence;
  std::vector<int32_t> positions;
  positions.reserve(static_cast<size_t>(documents.back()));
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    const int32_t start = starts.empty() ? 0 : starts[d];
    for (int32_t t = documents[d]; t < documents[d + 1]; ++t) {
      positions.push_back(start + t - documents[d]);
    }
  }
  sequence.positions = HostTable(std::move(positions));
  sequence.documents = HostTable(std::move(documents));
  return sequence;
}

Sequence make_sequence(std::vector<int32_t> whole, int64_t rows, Communicator& ranks,
                       const SpanTravel& travel) {
  check_offsets(whole);
  const int64_t length = whole.back() / rows, size = ranks.size();
  WEFT_CHECK(length * rows == whole.back(), "{} tokens are not {} rows of equal length",
             whole.back(), rows);
  std::vector<Sequence::Span> spans;
  for (int64_t r = 0; r < size; ++r) spans.push_back({r * length / size, (r + 1) * length / size});
  const Sequence::Span mine = spans[static_cast<size_t>(ranks.rank())];

  std::vector<int32_t> documents = {0}, starts;
  std::vector<Chain> chains;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = row * length + mine.begin, end = row * length + mine.end;
    Chain chain{.first = static_cast<int32_t>(starts.size())};
    // The document that holds the first token, or would: an empty span passes on what enters it.
    auto border = std::upper_bound(whole.begin(), whole.end(), static_cast<int32_t>(begin));
    int64_t from = *(border - 1), at = begin;
    chain.continues = from < begin;
    do {
      const int64_t to = border == whole.end() ? end : std::min<int64_t>(*border, end);
      starts.push_back(static_cast<int32_t>(at - from));
      documents.push_back(static_cast<int32_t>(documents.back() + to - at));
      from = at = to;
      if (border != whole.end()) ++border;
    } while (at < end);
    chain.last = static_cast<int32_t>(starts.size()) - 1;
    chains.push_back(chain);
  }
  Sequence sequence = make_sequence(std::move(documents), starts);
  sequence.ranks = &ranks;
  sequence.travel = travel;
  sequence.chains = std::move(chains);
  sequence.spans = std::move(spans);
  sequence.whole = std::move(whole);
  return sequence;
}

std::vector<int32_t> tokens_before(const Sequence& sequence) {
  std::vector<int32_t> before;
  for (size_t d = 0; d + 1 < sequence.documents.size(); ++d) {
    const int32_t begin = sequence.documents[d];
    const bool some = !sequence.positions.empty() && sequence.documents[d + 1] > begin;
    before.push_back(some ? sequence.positions[static_cast<size_t>(begin)] : 0);
  }
  return before;
}

std::vector<int32_t> documents_between(const std::vector<int32_t>& documents, int64_t begin,
                                       int64_t end) {
  std::vector<int32_t> part;
  for (const int32_t offset : documents) {
    if (offset >= begin && offset <= end) part.push_back(static_cast<int32_t>(offset - begin));
  }
  WEFT_CHECK(part.size() >= 2 && part.front() == 0 && part.back() == end - begin,
             "tokens {} to {} do not start and end at document borders", begin, end);
  return part;
}

}  // namespace weft
