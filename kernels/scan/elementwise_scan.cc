#include "kernels/scan/elementwise_scan.h"

#include "kernels/scan/cpu/elementwise_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

constexpr auto kOptional = Presence::kOptional;
constexpr auto kAlways = Presence::kAlways;

template <class Scan>
int64_t channels(const Scan& in) {
  return in.x.width();
}
template <class Scan>
int64_t states(const Scan& in) {
  return in.a_log.width();
}
template <class Scan>
int64_t numbers(const Scan& in) {
  return channels(in) * states(in);
}
constexpr ScanField<SelectiveScan> kSelective[] = {
    {"x", &SelectiveScan::x, &SelectiveScanGradients::dx, channels, FieldType::kReal},
    {"dt", &SelectiveScan::dt, &SelectiveScanGradients::d_dt, channels, FieldType::kF32},
    {"b", &SelectiveScan::b, &SelectiveScanGradients::db, states, FieldType::kReal},
    {"c", &SelectiveScan::c, &SelectiveScanGradients::dc, states, FieldType::kReal},
    {"a_log", &SelectiveScan::a_log, &SelectiveScanGradients::d_a_log, numbers, FieldType::kF32,
     kAlways, FieldRows::kNone},
    {"skip", &SelectiveScan::skip, &SelectiveScanGradients::d_skip, channels, FieldType::kF32,
     kOptional, FieldRows::kNone},
};
constexpr ScanField<StaticScan> kStatic[] = {
    {"x", &StaticScan::x, &StaticScanGradients::dx, channels, FieldType::kReal},
    {"log_dt", &StaticScan::log_dt, &StaticScanGradients::d_log_dt, channels, FieldType::kF32,
     kAlways, FieldRows::kNone},
    {"a_log", &StaticScan::a_log, &StaticScanGradients::d_a_log, numbers, FieldType::kF32, kAlways,
     FieldRows::kNone},
    {"b", &StaticScan::b, &StaticScanGradients::db, numbers, FieldType::kF32, kAlways,
     FieldRows::kNone},
    {"c", &StaticScan::c, &StaticScanGradients::dc, numbers, FieldType::kF32, kAlways,
     FieldRows::kNone},
    {"skip", &StaticScan::skip, &StaticScanGradients::d_skip, channels, FieldType::kF32, kOptional,
     FieldRows::kNone},
};

template <class Scan>
void check_scan(const Scan& in) {
  WEFT_CHECK(in.a_log.width() > 0 && in.a_log.rows() == in.x.width(),
             "{}: a_log is {}, x has {} channels", in.kName, in.a_log.shape, in.x.width());
  check_inputs(in);
}
template <class Scan>
void check_states(const Scan& in, const char* name, ConstView x) {
  check_state(in.kName, name, x, documents_of(in) * numbers(in));
}
template <class Scan>
void check_channels(const Scan& in, const char* name, ConstView x) {
  check_field({in.kName, "", name, tokens_of(in), channels(in), FieldType::kReal,
               FieldRows::kTokens, in.x.dtype},
              x);
}

// `each`: sums, products and exponentials per token, channel and state.
template <class Scan>
KernelCall call_of(const char* name, const Scan& in, double each, int64_t read, int64_t written) {
  return {.name = name,
          .type = in.x.dtype,
          .flops = each * static_cast<double>(tokens_of(in) * numbers(in)),
          .read = bytes_of_inputs(in) + read,
          .written = written};
}

template <class Scan>
void run_forward(Exec& exec, const char* name, double each,
                 void (*cpu)(Exec&, const Scan&, ConstView, View, View), const Scan& in,
                 ConstView initial_state, View out, View final_state) {
  check_scan(in);
  check_states(in, "initial_state", initial_state);
  check_states(in, "final_state", final_state);
  if (given(out)) check_channels(in, "out", out);
  dispatch(exec, call_of(name, in, each, bytes_of(initial_state), bytes_of(out, final_state)), cpu,
           in, initial_state, out, final_state);
}

template <class Scan, class Gradients>
void run_backward(Exec& exec, const char* name, double each,
                  void (*cpu)(Exec&, const Scan&, ConstView, ConstView, ConstView,
                              const Gradients&),
                  const Scan& in, ConstView initial_state, ConstView d_out, ConstView d_final_state,
                  const Gradients& gradients) {
  check_scan(in);
  check_states(in, "initial_state", initial_state);
  check_states(in, "d_final_state", d_final_state);
  check_states(in, "d_initial_state", gradients.d_initial_state);
  check_channels(in, "d_out", d_out);
  check_gradients(in, gradients);
  const GradientBytes bytes = bytes_of_gradients<Scan>(gradients);
  dispatch(exec,
           call_of(name, in, each, bytes_of(initial_state, d_out, d_final_state) + bytes.read,
                   bytes.written + bytes_of(gradients.d_initial_state)),
           cpu, in, initial_state, d_out, d_final_state, gradients);
}

// A step of M is a decay, a product and a sum each for what enters and what stays, and two for what
// is read. Backward walks through time twice, and every product gives two; a selective scan has
// gradients of steps and inputs of every token.
constexpr double kForward = 7, kSelectiveBackward = 22, kStaticBackward = 16;

}  // namespace

std::span<const ScanField<SelectiveScan>> SelectiveScan::fields() { return kSelective; }
std::span<const ScanField<StaticScan>> StaticScan::fields() { return kStatic; }

void selective_scan_forward(Exec& exec, const SelectiveScan& in, ConstView initial_state, View out,
                            View final_state) {
  run_forward(exec, "selective_scan_forward", kForward, cpu::selective_scan_forward, in,
              initial_state, out, final_state);
}
void selective_scan_backward(Exec& exec, const SelectiveScan& in, ConstView initial_state,
                             ConstView d_out, ConstView d_final_state,
                             const SelectiveScanGradients& gradients) {
  run_backward(exec, "selective_scan_backward", kSelectiveBackward, cpu::selective_scan_backward,
               in, initial_state, d_out, d_final_state, gradients);
}

void static_scan_forward(Exec& exec, const StaticScan& in, ConstView initial_state, View out,
                         View final_state) {
  run_forward(exec, "static_scan_forward", kForward, cpu::static_scan_forward, in, initial_state,
              out, final_state);
}
void static_scan_backward(Exec& exec, const StaticScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const StaticScanGradients& gradients) {
  run_backward(exec, "static_scan_backward", kStaticBackward, cpu::static_scan_backward, in,
               initial_state, d_out, d_final_state, gradients);
}

}  // namespace weft::kernels
