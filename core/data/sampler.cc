#include "core/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/base/error.h"
#include "core/host_access.h"

namespace weft {

// The documents of one epoch in shuffled order, laid end to end.
class DocumentLine {
 public:
  DocumentLine(const SamplerSource& source, uint64_t seed, const std::string& name)
      : source_(source), order_(seed, name, source.documents) {
    int64_t at = 0;
    for (int64_t i = 0; i < source.documents; ++i) {
      if (i % kStride == 0) starts_.push_back(at);
      at += source.data->document_tokens(document(i));
    }
  }

  // Calls visit(document, begin, count, ends) for the pieces of documents that make up tokens
  // [position, position + count) of the line, in order; `ends` when a piece reaches its document's
  // end.
  template <class Visit>
  void pieces(int64_t position, int64_t count, Visit&& visit) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), position);
    int64_t i = (after - starts_.begin() - 1) * kStride;
    int64_t skip = position - *(after - 1);
    for (; count > 0; ++i) {
      const int64_t here = document(i);
      const int64_t tokens = source_.data->document_tokens(here);
      if (skip >= tokens) {
        skip -= tokens;
        continue;
      }
      const int64_t take = std::min(count, tokens - skip);
      visit(here, skip, take, skip + take == tokens);
      count -= take;
      skip = 0;
    }
  }

 private:
  // One start per so many documents is kept; the ones between are walked. Bounds memory for corpora
  // of many small documents.
  static constexpr int64_t kStride = 64;

  int64_t document(int64_t i) const { return source_.first_document + order_(i); }

  const SamplerSource& source_;
  Permutation order_;
  std::vector<int64_t> starts_;
};

namespace {

int64_t tokens_of(const SamplerSource& source) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < source.documents; ++i) {
    tokens += source.data->document_tokens(source.first_document + i);
  }
  return tokens;
}

}  // namespace

// One dataset, epoch after epoch.
class Sampler::Source {
 public:
  Source(SamplerSource source, const SamplerOptions& options, int index)
      : source_(std::move(source)), options_(options), index_(index) {
    const int64_t all = source_.data->documents();
    if (source_.documents < 0) source_.documents = all - source_.first_document;
    WEFT_CHECK(source_.first_document >= 0 && source_.documents >= 0 &&
                   source_.first_document + source_.documents <= all,
               "documents {} + {} of {}", source_.first_document, source_.documents, all);
    tokens_ = tokens_of(source_);
    if (tokens_ < options.sequence + 1) {
      throw ConfigError(
          "{}: {} tokens in {} documents, but one sample "
          "of train.sequence = {} needs {}; add data{}",
          source_.data->prefix(), tokens_, source_.documents, options.sequence,
          options.sequence + 1,
          tokens_ > 1 ? fmt::format("; nearest: train.sequence = {}", tokens_ - 1) : "");
    }
    samples_ = (tokens_ - 1) / options.sequence;
  }

  int64_t tokens() const { return tokens_; }
  int64_t samples() const { return samples_; }
  const IndexedDataset& data() const { return *source_.data; }

  // The pieces of the T + 1 tokens of a sample.
  template <class Visit>
  void pieces(int64_t sample, Visit&& visit) {
    const Epoch& epoch = open(sample / samples_);
    const int64_t position = epoch.order(sample % samples_) * options_.sequence;
    epoch.line.pieces(position, options_.sequence + 1, visit);
  }

 private:
  struct Epoch {
    int64_t number;
    DocumentLine line;
    Permutation order;
  };

  // Neighbouring samples can lie on both sides of an epoch's end, so two stay open.
  const Epoch& open(int64_t number) {
    for (const auto& epoch : epochs_) {
      if (epoch != nullptr && epoch->number == number) return *epoch;
    }
    auto& slot = epochs_[number % 2];
    slot.reset();
    slot.reset(new Epoch{
        number,
        DocumentLine(source_, options_.seed, fmt::format("data.{}.documents.{}", index_, number)),
        Permutation(options_.seed, fmt::format("data.{}.samples.{}", index_, number), samples_)});
    return *slot;
  }

  SamplerSource source_;
  SamplerOptions options_;
  int index_;
  int64_t tokens_ = 0, samples_ = 0;
  std::unique_ptr<Epoch> epochs_[2];
};

// Which source a sample comes from. After every block each source has been given its share of all
// samples so far, to within one.
class Sampler::Blend {
 public:
  static constexpr int64_t kBlock = 256;

  Blend(std::vector<double> weights, uint64_t seed)
      : weights_(std::move(weights)),
        seed_(seed),
        given_(weights_.size()),
        quota_(weights_.size()) {
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    for (double& weight : weights_) weight /= sum;
    restart();
  }

  Place place_of(int64_t sample) {
    go_to(sample / kBlock);
    int64_t slot = (*shuffle_)(sample % kBlock);
    size_t source = 0;
    while (slot >= quota_[source]) slot -= quota_[source++];
    return {static_cast<int>(source), given_[source] + slot};
  }

  // How many of the first `samples` each source gives.
  void count(int64_t samples, std::vector<Use>& out) {
    const int64_t whole =
        (samples - 1) / kBlock;  // blocks before the one that holds the last sample
    go_to(whole);
    for (size_t k = 0; k < out.size(); ++k) out[k].samples = given_[k];
    for (int64_t s = whole * kBlock; s < samples; ++s)
      ++out[static_cast<size_t>(place_of(s).source)].samples;
  }

 private:
  void restart() {
    block_ = 0;
    shuffle_.reset();
    std::fill(given_.begin(), given_.end(), 0);
    set_quotas();
  }

  void go_to(int64_t block) {
    if (block < block_) restart();
    if (block == block_ && shuffle_) return;
    while (block_ < block) {
      for (size_t k = 0; k < given_.size(); ++k) given_[k] += quota_[k];
      ++block_;
      set_quotas();
    }
    shuffle_.emplace(seed_, fmt::format("data.blend.{}", block_), kBlock);
  }

  // Whole numbers that sum to the block: the floors of what each source is owed, and one more for
  // those with the largest remainders.
  void set_quotas() {
    std::vector<double> owed(weights_.size());
    int64_t left = kBlock;
    for (size_t k = 0; k < owed.size(); ++k) {
      const double share = weights_[k] * static_cast<double>((block_ + 1) * kBlock);
      owed[k] = std::max(0.0, share - static_cast<double>(given_[k]));
      quota_[k] = std::min(left, static_cast<int64_t>(owed[k]));
      owed[k] -= static_cast<double>(quota_[k]);
      left -= quota_[k];
    }
    for (; left > 0; --left) {
      const auto most = std::max_element(owed.begin(), owed.end()) - owed.begin();
      ++quota_[static_cast<size_t>(most)];
      owed[static_cast<size_t>(most)] -= 1;
    }
  }

  std::vector<double> weights_;
  uint64_t seed_;
  int64_t block_ = 0;
  std::vector<int64_t> given_;  // before this block
  std::vector<int64_t> quota_;  // in this block
  std::optional<Permutation> shuffle_;
};

Sampler::Sampler(std::vector<SamplerSource> sources, SamplerOptions options) : options_(options) {
  WEFT_CHECK(!sources.empty() && options.sequence > 0, "{} sources, sequence {}", sources.size(),
             options.sequence);
  std::vector<double> weights;
  for (SamplerSource& source : sources) {
    weights.push_back(source.weight);
    if (!(source.weight >= 0) || !std::isfinite(source.weight)) {
      throw ConfigError("data.train: weight {} of {} is not a positive number", source.weight,
                        source.data->prefix());
    }
    sources_.push_back(
        std::make_unique<Source>(std::move(source), options_, static_cast<int>(sources_.size())));
  }
  const auto unset = std::count(weights.begin(), weights.end(), 0.0);
  if (unset != 0 && static_cast<size_t>(unset) != weights.size()) {
    throw ConfigError("data.train: {} of {} datasets have no weight; give all of them one, or none",
                      unset, weights.size());
  }
  for (size_t k = 0; k < weights.size(); ++k) {
    if (unset != 0) weights[k] = static_cast<double>(sources_[k]->tokens());
  }
  blend_ = std::make_unique<Blend>(std::move(weights), options_.seed);
  row_.resize(static_cast<size_t>(options_.sequence) + 1);
}

Sampler::~Sampler() = default;

int64_t Sampler::samples_per_epoch(int source) const {
  return sources_[static_cast<size_t>(source)]->samples();
}

Sampler::Place Sampler::place_of(int64_t sample) {
  return sources_.size() == 1 ? Place{0, sample} : blend_->place_of(sample);
}

std::vector<Sampler::Use> Sampler::use(int64_t samples) {
  std::vector<Use> all;
  for (const auto& source : sources_) all.push_back({source->data().prefix(), 0, 0});
  if (all.size() == 1) {
    all[0].samples = samples;
  } else if (samples > 0) {
    blend_->count(samples, all);
  }
  for (size_t k = 0; k < all.size(); ++k) {
    all[k].epochs =
        static_cast<double>(all[k].samples) / static_cast<double>(sources_[k]->samples());
  }
  return all;
}

Batch Sampler::batch(Pool& pool, int64_t first, int64_t rows) {
  const int64_t width = options_.sequence;
  WEFT_CHECK(first >= 0 && rows >= 0 && rows * width <= INT32_MAX, "samples {} + {} of {} tokens",
             first, rows, width);
  Batch batch;
  batch.tokens = Tensor::empty(pool, {rows * width}, DType::kI32, Label::kData);
  batch.targets = Tensor::empty(pool, {rows * width}, DType::kI32, Label::kData);
  batch.documents.push_back(0);
  batch.target_tokens = rows * width;
  for (int64_t r = 0; r < rows; ++r) {
    int32_t* targets = host<int32_t>(batch.targets) + r * width;
    const Place place = place_of(first + r);
    Source& source = *sources_[static_cast<size_t>(place.source)];
    std::vector<int64_t> ends;
    int64_t at = 0;
    source.pieces(place.index, [&](int64_t document, int64_t begin, int64_t count, bool end) {
      source.data().read(document, begin, count, row_.data() + at);
      at += count;
      if (end && at <= width) ends.push_back(at);
    });
    std::copy_n(row_.data(), width, host<int32_t>(batch.tokens) + r * width);
    std::copy_n(row_.data() + 1, width, targets);
    if (options_.pack) {
      for (const int64_t end : ends) {
        targets[end - 1] = -1;
        --batch.target_tokens;
        if (end < width) batch.documents.push_back(static_cast<int32_t>(r * width + end));
      }
    }
    batch.documents.push_back(static_cast<int32_t>((r + 1) * width));
  }
  return batch;
}

int64_t Sampler::target_tokens(int64_t first, int64_t rows) {
  int64_t counting = rows * options_.sequence;
  if (!options_.pack) return counting;
  for (int64_t sample = first; sample < first + rows; ++sample) {
    const Place place = place_of(sample);
    int64_t at = 0;
    sources_[static_cast<size_t>(place.source)]->pieces(
        place.index, [&](int64_t, int64_t, int64_t count, bool end) {
          at += count;
          if (end && at <= options_.sequence) --counting;
        });
  }
  return counting;
}

int64_t validation_border(const IndexedDataset& data, double fraction) {
  if (data.documents() < 2) {
    throw ConfigError(
        "{}: {} document cannot be split into training and validation; name a "
        "validation dataset in data.valid",
        data.prefix(), data.documents());
  }
  WEFT_CHECK(fraction > 0 && fraction < 1, "a validation fraction of {}", fraction);
  const double wanted = fraction * static_cast<double>(data.tokens());
  int64_t border = data.documents(), tail = 0;
  while (border > 1 && (static_cast<double>(tail) < wanted || border == data.documents())) {
    tail += data.document_tokens(--border);
  }
  return border;
}

}  // namespace weft
