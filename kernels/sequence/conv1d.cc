#include "kernels/sequence/conv1d.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/sequence/cpu/conv1d.h"
#include "kernels/sequence/history.h"

namespace weft::kernels {
namespace {

HistoryShape check(const ShortConv& conv, ConstView x, ConstView weight, ConstView bias) {
  WEFT_CHECK(conv.activation == Activation::kSilu || conv.activation == Activation::kIdentity,
             "short_conv: the activation is silu or none");
  WEFT_CHECK(conv.taps >= 1, "short_conv: {} taps", conv.taps);
  check_real(x, "short_conv: x");
  check_documents(conv.documents, x.rows(), "short_conv");
  check_numbers(weight, x.width() * conv.taps, "short_conv: weight");
  check_optional_numbers(bias, x.width(), "short_conv: bias");
  return {conv.documents, conv.taps - 1, x.width()};
}

double products(const ShortConv& conv, ConstView x) {
  return 2.0 * static_cast<double>(conv.taps) * elements(x);
}

}  // namespace

void short_conv_forward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                        ConstView bias, View y, const ConvHistory& history) {
  if (nothing_in(x) && !given(history.leaving)) return;
  const HistoryShape shape = check(conv, x, weight, bias);
  check_history(history.entering, shape, "short_conv: history");
  check_history(history.leaving, shape, "short_conv: leaving history");
  if (x.rows() > 0) check_matrix(y, x.rows(), x.width(), "short_conv: y");
  dispatch(exec,
           {.name = "short_conv_forward",
            .type = x.dtype,
            .flops = products(conv, x) + 4 * elements(x),
            .read = bytes_of(x, weight, bias, history.entering),
            .written = bytes_of(y, history.leaving)},
           cpu::short_conv_forward, conv, x, weight, bias, y, history);
}

void short_conv_backward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                         ConstView bias, ConstView dy, View dx, View d_weight, View d_bias,
                         const ConvHistoryGradients& history) {
  if (nothing_in(x) && !given(history.d_entering)) return;
  const HistoryShape shape = check(conv, x, weight, bias);
  check_matrix(dy, x.rows(), x.width(), "short_conv: dy");
  check_matrix(dx, x.rows(), x.width(), "short_conv: dx");
  WEFT_CHECK(given(bias) == given(d_bias), "short_conv: bias and d_bias are given together");
  check_numbers(d_weight, x.width() * conv.taps, "short_conv: d_weight");
  check_optional_numbers(d_bias, x.width(), "short_conv: d_bias");
  check_history(history.entering, shape, "short_conv: history");
  check_history(history.d_leaving, shape, "short_conv: d_leaving");
  check_history(history.d_entering, shape, "short_conv: d_entering");
  dispatch(
      exec,
      {.name = "short_conv_backward",
       .type = x.dtype,
       .flops = 3 * products(conv, x) + 8 * elements(x),
       .read = bytes_of(x, weight, bias, dy, d_weight, d_bias, history.entering, history.d_leaving),
       .written = bytes_of(dx, d_weight, d_bias, history.d_entering)},
      cpu::short_conv_backward, conv, x, weight, bias, dy, dx, d_weight, d_bias, history);
}

}  // namespace weft::kernels
