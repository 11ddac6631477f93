#include "parallel/comm/mesh.h"

#include <algorithm>

#include "parallel/comm/self_comm.h"

namespace weft {
namespace {

constexpr Axis kAll[] = {Axis::kTensor, Axis::kSequence, Axis::kData, Axis::kPipe};

// Every group that anything asks for. One more costs a communicator at start; one missing is an
// error at once.
const std::vector<std::vector<Axis>>& groups() {
  static const std::vector<std::vector<Axis>> kGroups = {
      {Axis::kTensor},
      {Axis::kSequence},
      {Axis::kData},
      {Axis::kPipe},
      {Axis::kExpertTensor},
      {Axis::kExpert},
      {Axis::kExpertData},
      {Axis::kExpertTensor, Axis::kExpert},           // share the experts
      {Axis::kData, Axis::kSequence},                 // share the dense weights
      {Axis::kTensor, Axis::kSequence},               // hold the tokens of a micro-batch
      {Axis::kTensor, Axis::kSequence, Axis::kData},  // a stage
      {kAll, kAll + 4}};
  return kGroups;
}

}  // namespace

Mesh::Mesh() : tally_(std::make_unique<CommTally>()) {
  groups_[0] = std::make_unique<SelfComm>("self");
}

Mesh::Mesh(const Layout& layout, const Splitter& split, Signatures signatures)
    : layout_(layout), tally_(std::make_unique<CommTally>()) {
  groups_[0] = std::make_unique<SelfComm>("self");
  for (const std::vector<Axis>& axes : groups()) {
    const uint32_t key = key_of(axes);
    if (groups_.contains(key)) continue;
    std::string name;
    for (const Axis axis : axes) {
      if (layout_.here[axis].size > 1)
        name += fmt::format("{}{}", name.empty() ? "" : "+", name_of(axis));
    }
    const std::vector<int> ranks = layout_.group(axes);
    const auto index = std::find(ranks.begin(), ranks.end(), layout_.rank) - ranks.begin();
    auto comm = split(ranks.front(), static_cast<int>(index), name);
    WEFT_CHECK(comm->size() == static_cast<int>(ranks.size()) && comm->rank() == index,
               "{}: rank {} of {}, the layout says {} of {}", name, comm->rank(), comm->size(),
               index, ranks.size());
    groups_[key] = std::make_unique<TracedComm>(std::move(comm), name, *tally_, signatures);
  }
}

uint32_t Mesh::key_of(std::span<const Axis> axes) const {
  uint32_t key = 0;
  for (const Axis axis : axes) {
    if (layout_.here[axis].size > 1) key |= uint32_t{1} << static_cast<int>(axis);
  }
  return key;
}

Communicator& Mesh::over(std::span<const Axis> axes) const {
  const auto found = groups_.find(key_of(axes));
  WEFT_CHECK(found != groups_.end(), "no communicator over these {} axes was made at the start",
             axes.size());
  return *found->second;
}

Communicator& Mesh::world() const { return over(kAll); }

}  // namespace weft
