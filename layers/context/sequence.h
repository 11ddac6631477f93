#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/memory/host_table.h"
#include "parallel/comm/communicator.h"
#include "parallel/sequence/span_algebra.h"

namespace weft {

// Documents that come from the sequence rank before, or go on at the next one. The state that
// enters a rank for a chain is that of its first document here; the one that leaves, that of its
// last.
struct Chain {
  int32_t first = 0, last = 0;  // documents of this rank
  bool continues = false;       // the first document started on a rank before
  bool passes() const { return continues && first == last; }  // the entering state leaves too
};

// Record of how a stateful part of a mixer changed the documents of a span, for tests of the
// algebra's laws.
struct SpanRecord {
  const SpanAlgebra* algebra = nullptr;
  Summary summary;
  State entering, leaving;  // entering: empty where every document starts here
};

// Seconds that recurrences and attention took, without the projections around them.
struct CoreProfile {
  double forward = 0, backward = 0;
  double flops = 0;  // of forward, by the formulas that MFU counts with
  std::set<std::string, std::less<>> programs;
};

// Adds its lifetime to *seconds, minus the time spent in without().
class CoreTimer {
 public:
  explicit CoreTimer(double* seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~CoreTimer() {
    if (seconds_ != nullptr)
      *seconds_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  template <class Work>
  void without(Work&& work) {
    const auto before = Clock::now();
    work();
    start_ += Clock::now() - before;
  }
  CoreTimer(const CoreTimer&) = delete;
  CoreTimer& operator=(const CoreTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* seconds_;
  Clock::time_point start_;
};

// States between the chunks of a document: recomputed by backward, or kept by forward. The numbers
// are the same.
enum class ChunkStates : uint8_t { kRecomputed, kKept };

class RecomputeCache;  // layers/context/recompute_cache.h

// How the flat rows of a micro-batch form documents. Row borders of the batch are document borders
// too; nothing (state, attention, convolution, position) crosses one.
struct Sequence {
  HostTable<int32_t> documents;  // offsets, n + 1 entries from 0 to the number of tokens
  HostTable<int32_t> positions;  // of tokens, counted from each document's start; may be absent

  // Sequence parallelism: this rank holds tokens [begin, end) of every row of the batch.
  struct Span {
    int64_t begin = 0, end = 0;
  };
  Communicator* ranks = nullptr;    // null: every document is whole here
  SpanTravel travel = {};           // how states reach them
  std::vector<Chain> chains = {};   // one per row of the batch
  std::vector<Span> spans = {};     // by rank
  std::vector<int32_t> whole = {};  // offsets of the documents of the whole batch

  // Where to add records and times of each part; null: nowhere.
  std::vector<SpanRecord>* records = nullptr;
  CoreProfile* profile = nullptr;
  RecomputeCache* memory = nullptr;  // of a forward pass that is computed twice, or again
  ChunkStates chunk_states = ChunkStates::kRecomputed;

  int64_t tokens() const { return documents.back(); }
  int64_t count() const { return static_cast<int64_t>(documents.size()) - 1; }
  bool is_split() const { return ranks != nullptr && ranks->size() > 1; }
};

Sequence make_sequence(std::vector<int32_t> documents);

// As above for documents that began earlier: `starts` tokens of each came before (decoding).
Sequence make_sequence(std::vector<int32_t> documents, const std::vector<int32_t>& starts);

// This rank's part of a batch of `rows` rows of equal length, cut into documents at `whole`.
// Spans differ by at most one token.
Sequence make_sequence(std::vector<int32_t> whole, int64_t rows, Communicator& ranks,
                       const SpanTravel& travel = {});

// Tokens of each document that came before this span; 0 for documents without tokens here, and
// where positions are not counted.
std::vector<int32_t> tokens_before(const Sequence& sequence);

// The offsets of the documents in tokens [begin, end) of a batch, counted from `begin`. Both ends
// must be document borders.
std::vector<int32_t> documents_between(const std::vector<int32_t>& documents, int64_t begin,
                                       int64_t end);

}  // namespace weft
