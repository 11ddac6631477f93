#include "layers/sequence.h"

#include <algorithm>

namespace weft {

Sequence make_sequence(Exec& exec, std::vector<int32_t> documents) {
  WEFT_CHECK(documents.size() >= 2 && documents.front() == 0 &&
                 std::is_sorted(documents.begin(), documents.end()),
             "{} document offsets that do not rise from 0", documents.size());
  Sequence sequence;
  sequence.positions = exec.empty({documents.back()}, DType::kI32);
  auto* positions = sequence.positions.data<int32_t>();
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    for (int32_t t = documents[d]; t < documents[d + 1]; ++t) positions[t] = t - documents[d];
  }
  sequence.documents = std::move(documents);
  return sequence;
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
