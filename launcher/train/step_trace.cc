#include "launcher/train/step_trace.h"

namespace weft {

StepTrace::StepTrace(const Config& config, std::shared_ptr<const Mesh> mesh)
    : steps_(parse_steps(config.run.trace).value_or(StepRange{})),
      path_(config.run.dir + "/trace.json"),
      mesh_(std::move(mesh)) {}

void StepTrace::before(int64_t step) {
  Trace& trace = mesh_->trace();
  if (trace.on() || !steps_.contains(step)) return;
  mesh_->hosts().barrier();
  trace.start();
}

bool StepTrace::after(int64_t step, bool last) {
  Trace& trace = mesh_->trace();
  if (!trace.on() || (step < steps_.last && !last)) return false;
  trace.stop();
  const std::string title =
      mesh_->size() == 1 ? "weft"
                         : fmt::format("rank {}: {}", mesh_->rank(), describe(mesh_->here()));
  const std::vector<std::string> ranks =
      mesh_->hosts().gather_texts(trace_events(trace, mesh_->rank(), title));
  trace.clear();
  if (mesh_->rank() != 0) return false;
  write_trace(path_, ranks);
  return true;
}

}  // namespace weft
