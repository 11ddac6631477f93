#include "parallel/layout/layout.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "parallel/layout/layout_rules.h"

namespace weft {
namespace {

// Fastest first.
constexpr std::array kDense = {Axis::kTensor, Axis::kSequence, Axis::kData, Axis::kPipe};
constexpr std::array kExpert = {Axis::kExpertTensor, Axis::kExpert, Axis::kExpertData, Axis::kPipe};

bool contains(std::span<const Axis> axes, Axis axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

void place_on(std::span<const Axis> view, int rank, Coordinates& here) {
  for (const Axis axis : view) {
    here[axis].index = rank % here[axis].size;
    rank /= here[axis].size;
  }
}

}  // namespace

IndexRange even_part(int64_t count, int index, int parts) {
  WEFT_CHECK(index >= 0 && index < parts, "part {} of {}", index, parts);
  return {count * index / parts, count * (index + 1) / parts};
}

Coordinates coordinates_of(const ParallelConfig& p, int rank, int world) {
  const int stage = world / p.pipe;
  WEFT_CHECK(world % p.pipe == 0 && stage % (p.tensor * p.sequence) == 0 &&
                 stage % (p.expert * p.expert_tensor) == 0 && rank >= 0 && rank < world,
             "rank {} of {}: tensor {} sequence {} pipe {} expert {} expert_tensor {}", rank, world,
             p.tensor, p.sequence, p.pipe, p.expert, p.expert_tensor);
  Coordinates here;
  here[Axis::kPipe].size = p.pipe;
  here[Axis::kTensor].size = p.tensor;
  here[Axis::kSequence].size = p.sequence;
  here[Axis::kData].size = stage / (p.tensor * p.sequence);
  here[Axis::kExpertTensor].size = p.expert_tensor;
  here[Axis::kExpert].size = p.expert;
  here[Axis::kExpertData].size = stage / (p.expert * p.expert_tensor);
  place_on(kDense, rank, here);
  place_on(kExpert, rank, here);
  return here;
}

Layout make_layout(const Config& config, int rank, int world, const PlaceRule& model) {
  check_layout(config, world, model);
  return {config.parallel, rank, world, coordinates_of(config.parallel, rank, world)};
}

std::vector<int> Layout::group(std::span<const Axis> axes) const {
  const auto inside = [&](const auto& view) {
    return std::all_of(axes.begin(), axes.end(), [&](Axis axis) { return contains(view, axis); });
  };
  WEFT_CHECK(inside(kDense) || inside(kExpert),
             "a group over axes of both the dense and the expert view");
  const auto& view = inside(kDense) ? kDense : kExpert;
  std::vector<int> ranks = {rank};
  int stride = 1;
  for (const Axis axis : view) {
    const Coordinates::Place place = here[axis];
    if (contains(axes, axis)) {
      std::vector<int> wider;
      for (int i = 0; i < place.size; ++i) {
        for (const int r : ranks) wider.push_back(r + (i - place.index) * stride);
      }
      ranks = std::move(wider);
    }
    stride *= place.size;
  }
  return ranks;
}

IndexRange layers_of_stage(const ParallelConfig& degrees, int64_t layers, int stage) {
  const std::vector<int64_t> sizes = stage_sizes(degrees);
  if (sizes.empty()) return even_part(layers, stage, degrees.pipe * degrees.virtual_stages);
  const auto at = sizes.begin() + stage;
  const int64_t begin = std::accumulate(sizes.begin(), at, int64_t{0});
  return {begin, begin + *at};
}

IndexRange Layout::stage_layers(int64_t layers, int chunk) const {
  const Coordinates::Place pipe = here[Axis::kPipe];
  const int chunks = degrees.virtual_stages;
  WEFT_CHECK(chunk >= 0 && chunk < chunks, "chunk {} of {}", chunk, chunks);
  return layers_of_stage(degrees, layers, chunk * pipe.size + pipe.index);
}

IndexRange Layout::span(int64_t tokens) const {
  const Coordinates::Place sequence = here[Axis::kSequence];
  return even_part(tokens, sequence.index, sequence.size);
}

IndexRange Layout::micro_batches(int64_t count) const {
  const Coordinates::Place data = here[Axis::kData];
  return even_part(count, data.index, data.size);
}

std::string describe(const Coordinates& here) {
  return fmt::format("pipe {}, data {}, sequence {}, tensor {}", here[Axis::kPipe].index,
                     here[Axis::kData].index, here[Axis::kSequence].index,
                     here[Axis::kTensor].index);
}

std::string product_text(const Coordinates& here) {
  std::string text;
  int product = 1;
  for (const Axis axis : kDense) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name_of(axis), here[axis].size);
    product *= here[axis].size;
  }
  return fmt::format("{} = {} ranks", text, product);
}

std::string layout_table(const ParallelConfig& degrees, int world) {
  std::string text =
      fmt::format("{:>5} | {:>4} {:>5} {:>9} {:>7} | {:>12} {:>7} {:>14}\n", "rank", "pipe", "data",
                  "sequence", "tensor", "expert_data", "expert", "expert_tensor");
  for (int rank = 0; rank < world; ++rank) {
    const Coordinates at = coordinates_of(degrees, rank, world);
    text += fmt::format("{:>5} | {:>4} {:>5} {:>9} {:>7} | {:>12} {:>7} {:>14}\n", rank,
                        at[Axis::kPipe].index, at[Axis::kData].index, at[Axis::kSequence].index,
                        at[Axis::kTensor].index, at[Axis::kExpertData].index,
                        at[Axis::kExpert].index, at[Axis::kExpertTensor].index);
  }
  return text;
}

}  // namespace weft
