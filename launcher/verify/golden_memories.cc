#include "launcher/verify/golden_memories.h"

#include "core/host_access.h"
#include "layers/memory/memory_router.h"
#include "parallel/parameter_values.h"

namespace weft {

void give_memories(Exec& exec, const GoldenCase& golden, const Build& build, StepContext& step) {
  if (golden.exact() || !golden.has("out.route_index")) return;
  const Tensor index = golden.read(exec, "out.route_index", DType::kI32);
  const Shape& s = index.shape();
  step.given_memories[build.layer] = index.reshaped({s[0] * s[1], s[2]});
}

void check_memories(Runtime& runtime, const GoldenCase& golden, StepContext& step,
                    Comparison& compare) {
  if (!golden.has("out.route_index")) return;
  Exec& exec = runtime.exec();
  ParameterStore store;
  const MemoryRouter router({.store = store, .scope = "", .hidden = golden.shape("in.x")[2]},
                            {.memories = golden.shape("w.router.weight")[0],
                             .top_k = golden.shape("out.route_index")[2],
                             .shared = false});
  store.allocate(runtime.pool(), golden.precision, ParameterStore::Gradients::kNone);
  Parameter& weight = *store.find("router.weight");
  golden.file().read_into(golden.file().at("w.router.weight"), weight.master);
  publish(exec, store);
  const double aux = step.reports.at(0).aux;
  const MemoryRouting routing = router.forward(exec, golden.rows(exec, "in.x"), &step);
  compare.check(exec, "out.route_index", routing.index);
  compare.check(exec, "out.route_weight", routing.weight);
  const Tensor told = exec.empty({1});
  host<float>(told)[0] = static_cast<float>(aux);
  compare.check(exec, "out.aux_loss", told);
}

}  // namespace weft
