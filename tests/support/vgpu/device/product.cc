#include "tests/support/vgpu/device/product.h"

#include <cmath>
#include <vector>

#include "tests/support/vgpu/device/numbers.h"

namespace vgpu {
namespace {

using Direction = Checker::Direction;

// The bytes of rows x columns entries, line by line.
void touch(Checker& checker, Direction direction, const ProductMatrix& m, uint64_t at, int64_t rows,
           int64_t columns) {
  const auto bytes = static_cast<int64_t>(bytes_of(m.type));
  const bool by_rows = m.column == 1;
  const int64_t lines = by_rows ? rows : columns, length = by_rows ? columns : rows;
  const int64_t step = (by_rows ? m.row : m.column) * bytes;
  for (int64_t line = 0; line < lines; ++line) {
    checker.access_range(direction, at + static_cast<uint64_t>(line * step),
                         static_cast<uint64_t>(length * bytes));
  }
}

std::vector<double> read(Checker& checker, const ProductMatrix& m, uint64_t at, int64_t rows,
                         int64_t columns) {
  touch(checker, Direction::kReads, m, at, rows, columns);
  std::vector<double> values;
  values.reserve(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      values.push_back(load_number(m.type, at, i * m.row + j * m.column));
    }
  }
  return values;
}

double scalar_at(Checker& checker, uint64_t at, double otherwise) {
  if (at == 0) return otherwise;
  checker.access_range(Direction::kReads, at, sizeof(float));
  return load_number(NumberType::kF32, at, 0);
}

// sum[i][j] += a[i][l] b[l][j], rows of b in the inner loop.
std::vector<double> product_of(const std::vector<double>& a, const std::vector<double>& b,
                               int64_t m, int64_t n, int64_t k) {
  std::vector<double> sum(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    double* to = sum.data() + i * n;
    for (int64_t l = 0; l < k; ++l) {
      const double x = a[static_cast<size_t>(i * k + l)];
      const double* row = b.data() + l * n;
      for (int64_t j = 0; j < n; ++j) to[j] += x * row[j];
    }
  }
  return sum;
}

double curved(ProductBody::Curve curve, double x) {
  constexpr double kRootOf2OverPi = 0.7978845608028654;
  switch (curve) {
    case ProductBody::Curve::kRelu: return x > 0 ? x : 0;
    case ProductBody::Curve::kGelu:
      return 0.5 * x * (1 + std::tanh(kRootOf2OverPi * (x + 0.044715 * x * x * x)));
    default: return x;
  }
}

struct Factors {
  double product, c, d;
};

Factors factors_of(Checker& checker, const ProductBody& p) {
  const double a = scalar_at(checker, p.a_scale, 1), b = scalar_at(checker, p.b_scale, 1);
  return {scalar_at(checker, p.alpha_at, p.alpha) * a * b,
          scalar_at(checker, p.beta_at, p.beta) * scalar_at(checker, p.c_scale, 1),
          scalar_at(checker, p.d_scale, 1)};
}

// The largest magnitude of what is stored, before it is scaled.
double multiply_one(Checker& checker, const ProductBody& p, const Factors& factors,
                    const std::vector<double>& bias, int64_t batch) {
  const auto at = [batch](const ProductMatrix& m) {
    return m.data + static_cast<uint64_t>(batch * m.batch) * bytes_of(m.type);
  };
  std::vector<double> a = read(checker, p.a, at(p.a), p.m, p.k);
  std::vector<double> b = read(checker, p.b, at(p.b), p.k, p.n);
  if (p.round_to_tf32 != 0) {
    for (double& x : a) x = rounded_to_tf32(x);
    for (double& x : b) x = rounded_to_tf32(x);
  }
  std::vector<double> d = product_of(a, b, p.m, p.n, p.k);
  for (double& x : d) x *= factors.product;
  if (factors.c != 0) {
    const std::vector<double> c = read(checker, p.c, at(p.c), p.m, p.n);
    for (size_t i = 0; i < d.size(); ++i) d[i] += factors.c * c[i];
  }
  touch(checker, Direction::kWrites, p.d, at(p.d), p.m, p.n);
  double largest = 0;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double x = d[static_cast<size_t>(i * p.n + j)];
      if (!bias.empty()) x += bias[static_cast<size_t>(i)];
      x = curved(p.curve, x);
      largest = std::max(largest, std::abs(x));
      store_number(p.d.type, at(p.d), i * p.d.row + j * p.d.column, x * factors.d);
    }
  }
  return largest;
}

}  // namespace

void multiply(Checker& checker, const ProductBody& p) {
  if (p.workspace_bytes > 0) {
    checker.access_range(Direction::kWrites, p.workspace, p.workspace_bytes);
  }
  const Factors factors = factors_of(checker, p);
  std::vector<double> bias;
  if (p.bias != 0) {
    const ProductMatrix column{p.bias, p.bias_type, 1, p.m, 0};
    bias = read(checker, column, p.bias, p.m, 1);
  }
  double largest = 0;
  for (int64_t batch = 0; batch < p.batches; ++batch) {
    largest = std::max(largest, multiply_one(checker, p, factors, bias, batch));
  }
  if (p.amax_d == 0) return;
  checker.access_range(Direction::kWrites, p.amax_d, sizeof(float));
  store_number(NumberType::kF32, p.amax_d, 0, largest);
}

}  // namespace vgpu
