// GateLoop: a complex decay per key channel and token.
//   M_t = diag(e^{g_t + i p_t}) M_{t-1} + k_t^T v_t,   o_t = dk^{-1/2} Re(q_t M_t)
// g = logsigmoid(a_proj(x)) / 16, p = p_proj(x) in radians. The phases start small but not at zero,
// where their gradient would vanish.
#include "layers/mixers/shell_gates.h"
#include "layers/recurrence/complex_diagonal.h"

namespace weft {
namespace {

struct GateloopOptions : GatesOptions {};

void fields(FieldVisitor& f, GateloopOptions& c) {
  head_fields(f, c.heads.heads, c.heads.dk, c.heads.dv);
  gate_fields(f, c);
}

}  // namespace

std::unique_ptr<Mixer> make_gateloop(const MixerBuild& build) {
  auto o = read_options<GateloopOptions>(build.options, "gateloop");
  o.heads = resolve(build, o.heads);
  return std::make_unique<GatesShell<ComplexDiagonalRecurrence>>(
      build, o, SecondGate{"p_proj", o.heads.dk, SecondGate::Kind::kPlain});
}

std::vector<FieldInfo> options_of_gateloop() { return describe<GateloopOptions>(); }

}  // namespace weft
