#include "core/data/sampler.h"
#include "core/host_access.h"

#include <map>
#include <set>

#include "core/base/error.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using Documents = std::vector<std::vector<int32_t>>;

struct Corpus {
  ScratchFolder folder;
  Rig rig{1};
  int files = 0;

  std::shared_ptr<const IndexedDataset> write(const Documents& documents) {
    const std::string prefix = folder / std::to_string(files++);
    IndexedDatasetWriter writer(prefix, TokenType::kI32);
    for (const auto& document : documents) writer.add_document(document);
    writer.finish();
    return std::make_shared<IndexedDataset>(prefix);
  }

  // Every token is another number, in order.
  std::shared_ptr<const IndexedDataset> count_up(const std::vector<int>& lengths,
                                                 int32_t from = 0) {
    Documents documents;
    for (const int length : lengths) {
      auto& document = documents.emplace_back();
      for (int i = 0; i < length; ++i) document.push_back(from++);
    }
    return write(documents);
  }
};

std::vector<int32_t> ints(const Tensor& t) {
  return {host<int32_t>(t), host<int32_t>(t) + t.elements()};
}

// 150 documents, so that the line's starts are kept for several strides of 64.
std::vector<int> many_lengths() {
  std::vector<int> lengths;
  for (int i = 0; i < 150; ++i) lengths.push_back(i * 7 % 23);  // some are empty
  return lengths;
}

TEST(Permutation, IsOneForEverySize) {
  for (const int64_t count : {1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000}) {
    const Permutation shuffle(3, "x", count);
    std::set<int64_t> seen;
    int64_t fixed = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t x = shuffle(i);
      EXPECT_TRUE(x >= 0 && x < count);
      seen.insert(x);
      fixed += x == i ? 1 : 0;
    }
    EXPECT_EQ(std::ssize(seen), count);
    // The number of fixed points of a random permutation has mean 1 and deviation 1.
    EXPECT_TRUE(count < 255 || fixed <= 7) << fixed;
  }
}

TEST(Permutation, DependsOnSeedAndName) {
  const auto first = [](uint64_t seed, const char* name) {
    const Permutation shuffle(seed, name, 1000);
    std::vector<int64_t> out;
    for (int i = 0; i < 8; ++i) out.push_back(shuffle(i));
    return out;
  };
  EXPECT_EQ(first(1, "a"), first(1, "a"));
  EXPECT_NE(first(1, "a"), first(2, "a"));
  EXPECT_NE(first(1, "a"), first(1, "b"));
  EXPECT_THROW(Permutation(1, "a", 0), Error);
}

TEST(Sampler, IsTheSameHoweverItIsAsked) {
  Corpus corpus;
  const auto data = corpus.count_up(many_lengths());
  const SamplerOptions options{.sequence = 13, .seed = 5, .pack = true};
  Sampler whole({{data}}, options), parts({{data}}, options), other({{data}}, {13, 6, true});
  const int64_t rows = 3 * whole.samples_per_epoch(0);  // over the borders of epochs
  const Batch all = whole.batch(corpus.rig.pool, 0, rows);
  std::vector<int32_t> tokens(static_cast<size_t>(rows) * 13), targets = tokens;
  for (int64_t r = rows - 1; r >= 0; --r) {  // backwards, one by one: as another layout would
    const Batch one = parts.batch(corpus.rig.pool, r, 1);
    std::copy_n(host<int32_t>(one.tokens), 13, tokens.data() + r * 13);
    std::copy_n(host<int32_t>(one.targets), 13, targets.data() + r * 13);
  }
  EXPECT_EQ(ints(all.tokens), tokens);
  EXPECT_EQ(ints(all.targets), targets);
  EXPECT_NE(ints(other.batch(corpus.rig.pool, 0, rows).tokens), tokens);
}

TEST(Sampler, UsesEveryTokenOfAnEpochOnceAsInputAndOnceAsTarget) {
  Corpus corpus;
  const auto data = corpus.count_up(many_lengths());
  constexpr int64_t kWidth = 13;
  Sampler sampler({{data}}, {.sequence = kWidth, .seed = 1, .pack = false});
  const int64_t samples = sampler.samples_per_epoch(0);
  EXPECT_EQ(samples, (data->tokens() - 1) / kWidth);
  std::set<std::vector<int32_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const Batch batch = sampler.batch(corpus.rig.pool, epoch * samples, samples);
    const auto inputs = ints(batch.tokens), targets = ints(batch.targets);
    const std::set<int32_t> as_input(inputs.begin(), inputs.end());
    const std::set<int32_t> as_target(targets.begin(), targets.end());
    EXPECT_EQ(std::ssize(as_input), samples * kWidth);  // tokens are all different: none twice
    EXPECT_EQ(std::ssize(as_target), samples * kWidth);
    EXPECT_EQ(batch.target_tokens, samples * kWidth);
    epochs.insert(inputs);
  }
  EXPECT_EQ(epochs.size(), 3u);  // each shuffled differently
}

TEST(Sampler, PacksDocumentsWithBordersAndWithoutTargetsAcrossThem) {
  Corpus corpus;
  const auto lengths = many_lengths();
  const auto data = corpus.count_up(lengths);
  std::map<int32_t, int> document_of;  // token -> document
  int32_t token = 0;
  for (size_t d = 0; d < lengths.size(); ++d) {
    for (int i = 0; i < lengths[d]; ++i) document_of[token++] = static_cast<int>(d);
  }
  constexpr int64_t kWidth = 11;
  Sampler sampler({{data}}, {.sequence = kWidth, .seed = 2, .pack = true});
  const int64_t samples = sampler.samples_per_epoch(0);
  const Batch batch = sampler.batch(corpus.rig.pool, 0, samples);
  const auto inputs = ints(batch.tokens), targets = ints(batch.targets);
  std::vector<int32_t> borders = {0};
  int64_t counting = 0;
  for (int64_t i = 0; i < samples * kWidth; ++i) {
    const int here = document_of.at(inputs[i]);
    const bool last = !document_of.contains(inputs[i] + 1) || document_of[inputs[i] + 1] != here;
    EXPECT_EQ(targets[i], last ? -1 : inputs[i] + 1);
    counting += last ? 0 : 1;
    const bool row_end = (i + 1) % kWidth == 0;
    if (row_end || document_of.at(inputs[i + 1]) != here)
      borders.push_back(static_cast<int32_t>(i + 1));
  }
  EXPECT_EQ(batch.documents, borders);
  EXPECT_EQ(batch.target_tokens, counting);
  EXPECT_EQ(sampler.target_tokens(0, samples), counting);
}

TEST(Sampler, WithoutPackingPredictsAcrossBorders) {
  Corpus corpus;
  const auto data = corpus.count_up({2, 3});
  Sampler sampler({{data}}, {.sequence = 4, .seed = 1, .pack = false});
  const Batch batch = sampler.batch(corpus.rig.pool, 0, 2);
  const auto inputs = ints(batch.tokens), targets = ints(batch.targets);
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(targets[row * 4 + i], inputs[row * 4 + i + 1]);
  }
  EXPECT_EQ(batch.documents, (std::vector<int32_t>{0, 4, 8}));
  EXPECT_EQ(sampler.target_tokens(0, 2), 8);
}

TEST(Sampler, TakesASourceThatIsJustLargeEnough) {
  Corpus corpus;
  const auto data = corpus.count_up({3, 2});
  EXPECT_EQ(Sampler({{data}}, {.sequence = 4}).samples_per_epoch(0), 1);
  const std::string message = message_of<ConfigError>([&] { Sampler({{data}}, {.sequence = 5}); });
  EXPECT_NE(message.find("5 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("needs 6"), std::string::npos) << message;
}

TEST(Sampler, BlendsByWeight) {
  Corpus corpus;
  const std::vector<double> weights = {0.7, 0.299, 0.001};
  std::vector<SamplerSource> sources;
  for (size_t k = 0; k < weights.size(); ++k) {
    sources.push_back(
        {.data = corpus.count_up({50}, static_cast<int32_t>(1000 * k)), .weight = 10 * weights[k]});
  }
  Sampler sampler(sources, {.sequence = 4, .seed = 1, .pack = true});
  std::vector<std::set<int64_t>> seen(weights.size());
  constexpr int64_t kSamples = 256 * 40;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto place = sampler.place_of(i);
    EXPECT_TRUE(seen[place.source].insert(place.index).second);
    if ((i + 1) % 256 != 0) continue;
    for (size_t k = 0; k < weights.size();
         ++k) {  // at the end of a block shares are right within one
      EXPECT_NEAR(std::ssize(seen[k]), weights[k] * static_cast<double>(i + 1), 1.0 + 1e-9);
      EXPECT_TRUE(seen[k].empty() ||
                  *seen[k].rbegin() + 1 == std::ssize(seen[k]));  // without holes
    }
  }
  for (const int64_t sample : {300, 10}) {  // back again: the same
    Sampler fresh(sources, {.sequence = 4, .seed = 1, .pack = true});
    const auto place = sampler.place_of(sample), again = fresh.place_of(sample);
    EXPECT_EQ(place.source, again.source);
    EXPECT_EQ(place.index, again.index);
    const Batch batch = sampler.batch(corpus.rig.pool, sample, 1);
    EXPECT_EQ(host<int32_t>(batch.tokens)[0] / 1000, place.source);
  }
}

TEST(Sampler, TellsWhatEachSourceGave) {
  Corpus corpus;
  Sampler sampler(
      {{.data = corpus.count_up({41}), .weight = 2}, {.data = corpus.count_up({90}), .weight = 1}},
      {.sequence = 4});
  std::vector<int64_t> counted(2);
  for (int64_t i = 0; i <= 700; ++i) {
    if (i % 97 == 0 || i == 256 || i == 257) {
      const auto use = sampler.use(i);
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(use[k].samples, counted[k]) << i;
        EXPECT_EQ(use[k].epochs, static_cast<double>(counted[k]) / (k == 0 ? 10 : 22));
      }
    }
    ++counted[static_cast<size_t>(sampler.place_of(i).source)];
  }
  EXPECT_EQ(Sampler({{corpus.count_up({41})}}, {.sequence = 4}).use(25)[0].epochs, 2.5);
}

TEST(Sampler, BlendsBySizeWithoutWeights) {
  Corpus corpus;
  Sampler sampler({{corpus.count_up({3000})}, {corpus.count_up({1000})}}, {.sequence = 4});
  int64_t first = 0;
  for (int64_t i = 0; i < 1024; ++i) first += sampler.place_of(i).source == 0 ? 1 : 0;
  EXPECT_EQ(first, 768);
}

TEST(Sampler, RefusesWeightsThatMakeNoSense) {
  Corpus corpus;
  const auto data = corpus.count_up({100});
  EXPECT_THROW(Sampler({{data, -1.0}}, {.sequence = 4}), ConfigError);
  EXPECT_THROW(Sampler({{data, std::nan("")}}, {.sequence = 4}), ConfigError);
  EXPECT_THROW(Sampler({{data, 1.0}, {data, 0.0}}, {.sequence = 4}), ConfigError);
}

TEST(Sampler, HoldsDocumentsOutForValidation) {
  Corpus corpus;
  const auto data = corpus.count_up({40, 30, 20, 10});
  EXPECT_EQ(validation_border(*data, 0.05), 3);
  EXPECT_EQ(validation_border(*data, 0.1), 3);
  EXPECT_EQ(validation_border(*data, 0.11), 2);
  EXPECT_EQ(validation_border(*data, 0.99), 1);
  EXPECT_THROW(validation_border(*corpus.count_up({40}), 0.1), ConfigError);
  Sampler train({{data, 0, 0, 2}}, {.sequence = 4, .seed = 1, .pack = true});
  Sampler valid({{data, 0, 2, -1}}, {.sequence = 4, .seed = 1, .pack = true});
  for (const int32_t token : ints(train.batch(corpus.rig.pool, 0, 50).tokens)) EXPECT_LT(token, 70);
  for (const int32_t token : ints(valid.batch(corpus.rig.pool, 0, 50).tokens)) EXPECT_GE(token, 70);
}

}  // namespace
}  // namespace weft::test
