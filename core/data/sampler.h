#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/permutation.h"
#include "core/data/indexed_dataset.h"
#include "core/memory/tensor.h"

namespace weft {

// Rows of training data. A target of -1 does not count.
struct Batch {
  Tensor tokens;   // i32 [rows * T]
  Tensor targets;  // i32 [rows * T]
  // Where documents start and end in the flat tokens: 0, ..., rows * T. Every row is a border; with
  // packing the borders of the corpus are too.
  std::vector<int32_t> documents;
  int64_t target_tokens = 0;  // targets that count
};

struct SamplerSource {
  std::shared_ptr<const IndexedDataset> data;
  double weight = 0;           // share of the samples; 0 everywhere: as much as each has tokens
  int64_t first_document = 0;  // a part of the documents, to hold some out for validation
  int64_t documents = -1;      // -1: all behind the first
};

struct SamplerOptions {
  int64_t sequence = 0;  // T
  uint64_t seed = 1;
  bool pack = true;
};

// Sample i of a run: a function of (sources, options, i) and of nothing else, so that it does not
// depend on the number of ranks, and the position of a run is the number of samples it has
// consumed.
//
// A source is read in epochs. In each its documents are shuffled and laid end to end; sample n has
// tokens n T .. n T + T - 1 of that line as inputs and those shifted by one as targets, and the
// samples are shuffled again. Fewer than T + 1 tokens at the end of the line are left out of an
// epoch, other ones in each. With packing, the target of a document's last token is -1; without, it
// is the next document's first token.
//
// Several sources take turns in blocks of 256 samples in which each has its share, with the
// rounding made good in the next block.
//
// Only the pages that hold the asked rows are read. Not thread-safe (remembers where it is).
class Sampler {
 public:
  Sampler(std::vector<SamplerSource> sources, SamplerOptions options);
  ~Sampler();

  // Samples [first, first + rows). Step s with a global batch of G has samples s G .. s G + G - 1;
  // a rank asks for its part of them.
  Batch batch(Pool& pool, int64_t first, int64_t rows);
  // The number of counting targets in those samples, without reading tokens: a rank needs it for
  // the whole global batch.
  int64_t target_tokens(int64_t first, int64_t rows);

  int64_t samples_per_epoch(int source) const;
  struct Place {
    int source;
    int64_t index;  // the how-manieth sample of that source, over all epochs
  };
  Place place_of(int64_t sample);

  // What the first `samples` samples of a run took from each source.
  struct Use {
    std::string source;  // the dataset's prefix
    int64_t samples = 0;
    double epochs = 0;  // how often it was read through
  };
  std::vector<Use> use(int64_t samples);

 private:
  class Source;
  class Blend;
  std::vector<std::unique_ptr<Source>> sources_;
  std::unique_ptr<Blend> blend_;
  SamplerOptions options_;
  std::vector<int32_t> row_;
};

// The first document of the tail that holds about `fraction` of the tokens (at least one document,
// at most all but one): documents before it train, the rest validates.
int64_t validation_border(const IndexedDataset& data, double fraction);

}  // namespace weft
