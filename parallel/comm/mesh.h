#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>

#include "parallel/comm/traced_comm.h"
#include "parallel/layout/layout.h"

namespace weft {

// Forms groups: called by all ranks in the same order; ranks of equal color belong together,
// ordered by key. What World and ThreadComm call split.
using Splitter =
    std::function<std::unique_ptr<Communicator>(int color, int key, const std::string& axis)>;

// A rank's place and all communicators it will ever use, made at the start and in the same order on
// every rank.
class Mesh {
 public:
  Mesh();  // one rank alone
  Mesh(const Layout& layout, const Splitter& split, Signatures signatures = Signatures::kTrust);

  const Layout& layout() const { return layout_; }
  const Coordinates& here() const { return layout_.here; }
  int rank() const { return layout_.rank; }
  int size() const { return layout_.world; }

  // The ranks that differ from this one on `axes` alone; a group of one where there is one rank on
  // each.
  Communicator& over(std::span<const Axis> axes) const;
  Communicator& over(std::initializer_list<Axis> axes) const {
    return over(std::span(axes.begin(), axes.size()));
  }
  Communicator& world() const;
  // The hosts of all ranks, and of those over some axes.
  HostGroup& hosts() const { return world().hosts(); }
  HostGroup& hosts(std::initializer_list<Axis> axes) const { return over(axes).hosts(); }

  CommTally& tally() const { return *tally_; }
  Activity& activity() const { return tally_->activity(); }
  Trace& trace() const { return tally_->trace(); }

 private:
  uint32_t key_of(std::span<const Axis> axes) const;

  Layout layout_;
  std::unique_ptr<CommTally> tally_;
  std::map<uint32_t, std::unique_ptr<Communicator>>
      groups_;  // by the axes with more than one rank, as bits
};

}  // namespace weft
