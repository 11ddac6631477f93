#include "layers/sequence.h"

namespace weft {

Sequence make_sequence(Exec& exec, std::vector<int32_t> documents) {
  WEFT_CHECK(documents.size() >= 2 && documents.front() == 0, "{} document offsets",
             documents.size());
  Sequence sequence;
  sequence.positions = exec.empty({documents.back()}, DType::kI32);
  auto* positions = sequence.positions.data<int32_t>();
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    WEFT_CHECK(documents[d] <= documents[d + 1], "document {} ends before it starts", d);
    for (int32_t t = documents[d]; t < documents[d + 1]; ++t) positions[t] = t - documents[d];
  }
  sequence.documents = std::move(documents);
  return sequence;
}

}  // namespace weft
