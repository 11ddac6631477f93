#pragma once

#include <memory>
#include <string>

#include "core/config/run_config.h"
#include "core/report/trace.h"
#include "parallel/comm/mesh.h"

namespace weft {

// The timeline of some steps of a run (run.trace): every rank notes what it does, the first writes
// run.dir/trace.json.
class StepTrace {
 public:
  StepTrace(const Config& config, std::shared_ptr<const Mesh> mesh);

  // Both collective, where the step is one of those asked for. Ranks start their clocks together.
  void before(int64_t step);
  // `last`: of the run. True when the file was written.
  bool after(int64_t step, bool last);

  const std::string& path() const { return path_; }

 private:
  StepRange steps_;
  std::string path_;
  std::shared_ptr<const Mesh> mesh_;
};

}  // namespace weft
