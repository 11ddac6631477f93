// The CUDA tile engine by itself, executed by the emulator: every word, on numbers of both kinds.
#include "core/host_access.h"
#include "tests/support/simt/cuda.h"
// The engine is written in the words above.
#include "kernels/tile/cuda.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

namespace cuda = kernels::cuda;
using namespace kernels::tile;
using Numbers = std::vector<double>;

template <int m_, int n_, int k_>
struct Sizes {
  static constexpr int m() { return m_; }
  static constexpr int n() { return n_; }
  static constexpr int k() { return k_; }
};

template <class Engine, class S>
struct Space {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::m, &S::k, kA> a;
  Op<&S::k, &S::m, kAt> a_turned;
  Op<&S::k, &S::n, kB> b;
  Op<&S::n, &S::k, kBt> b_turned;
  Op<&S::m, &S::n, kA | kB | kBt> c;
  Vec<&S::m> rows;
  Vec<&S::n> sums;
};

// Arguments of a kernel of these tests; c is its result. Views have one row and one column less
// than the operands, which must be zero there.
struct Views {
  cuda::In a, a_turned, b, b_turned;
  cuda::Out c, c_turned;
  cuda::OutVector rows, sums;
  Band band = kFull;
};

// body(engine, space, views) by one block.
template <class Engine, class S, class Body>
__global__ void run_body(const Views* views, Body body) {
  auto& memory = cuda::block_memory<cuda::Shared<Space<Engine, S>>>();
  Engine e(memory.scratch);
  auto& w = memory.space;
  e.load(w.a, views->a);
  e.load(w.b, views->b);
  e.load(w.a_turned, views->a_turned);
  e.load(w.b_turned, views->b_turned);
  body(e, w, *views);
}

// Numbers that bf16 holds exactly, so that only sums round.
template <class S>
struct Fixture {
  static constexpr int m = S::m() - 1, n = S::n() - 1, k = S::k() - 1;

  Fixture() {
    views.a = in(a), views.a_turned = in(a_turned), views.b = in(b), views.b_turned = in(b_turned);
    views.c = {host_bytes(c), n, m, n, false};
    views.c_turned = {host_bytes(turned), m, n, m, false};
    views.rows = {host<float>(rows), 1, S::m()};
    views.sums = {host<float>(sums), 1, S::n()};
  }
  cuda::In in(const Tensor& t) {
    return {host_bytes(t), t.shape()[1], static_cast<int>(t.shape()[0]),
            static_cast<int>(t.shape()[1]), true};
  }
  template <class Element, class Body>
  void run(Body body) {
    using Engine = cuda::Engine<Element>;
    const simt::Shape shape{1, cuda::kThreads, sizeof(cuda::Shared<Space<Engine, S>>)};
    simt::launch(shape, run_body<Engine, S, Body>, &views, body);
  }
  double at(const Tensor& t, int i, int j) const {
    return to_float(host<bf16>(t)[i * t.shape()[1] + j]);
  }
  template <class F>
  Numbers entries(F f) const {
    Numbers x;
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int l = 0; l < k; ++l) sum += f(i, j, l);
        x.push_back(sum);
      }
    }
    return x;
  }
  double product(int i, int j, int l) const { return at(a, i, l) * at(b, l, j); }

  Rig rig{1};
  Tensor a = rig.normal("a", {m, k}, 1, DType::kBF16), b = rig.normal("b", {k, n}, 1, DType::kBF16);
  Tensor a_turned = rig.normal("at", {k, m}, 1, DType::kBF16);
  Tensor b_turned = rig.normal("bt", {n, k}, 1, DType::kBF16);
  Tensor c = rig.exec.zeros({m, n}), turned = rig.exec.zeros({n, m});
  Tensor rows = rig.exec.zeros({S::m()}), sums = rig.exec.zeros({S::n()});
  Views views;
};

// test(Fixture, Element) for results of fewer and more blocks than there are warps, of two and four
// fragments each, with more and less depth than a step.
template <class S, class Test>
void for_elements(Test test) {
  Fixture<S> f;
  test.template operator()<cuda::Bf16>(f);
  test.template operator()<cuda::F32>(f);
}
template <class Test>
void for_all(Test test) {
  for_elements<Sizes<16, 16, 16>>(test);
  for_elements<Sizes<32, 48, 64>>(test);
  for_elements<Sizes<128, 96, 32>>(test);
}

constexpr double kExact = 1e-6;    // sums of at most 128 exact products in f32
constexpr double kRounded = 4e-3;  // after operands have been rounded to bf16

TEST(CudaEngine, MultipliesInAllForms) {
  for_all([]<class Element>(auto& f) {
    f.template run<Element>(
        [](auto& e, auto& w, const Views& v) { e.run(kFull, nn(w.a, w.b), store(v.c)); });
    EXPECT_TRUE(
        Near(f.c, f.entries([&](int i, int j, int k) { return f.product(i, j, k); }), kExact));
    f.template run<Element>(
        [](auto& e, auto& w, const Views& v) { e.run(kFull, nt(w.a, w.b_turned), store(v.c)); });
    EXPECT_TRUE(Near(f.c, f.entries([&](int i, int j, int k) {
      return f.at(f.a, i, k) * f.at(f.b_turned, j, k);
    }),
                     kExact));
    f.template run<Element>(
        [](auto& e, auto& w, const Views& v) { e.run(kFull, tn(w.a_turned, w.b), store(v.c)); });
    EXPECT_TRUE(Near(f.c, f.entries([&](int i, int j, int k) {
      return f.at(f.a_turned, k, i) * f.at(f.b, k, j);
    }),
                     kExact));
  });
}

// tf32 alone has 10 bits: three products give back those of f32.
TEST(CudaEngine, MultipliesF32WithItsPrecision) {
  using S = Sizes<32, 32, 64>;
  Fixture<S> f;
  const Tensor a = f.rig.normal("a", {32, 64}), b = f.rig.normal("b", {64, 32});
  f.views.a = {host_bytes(a), 64, 32, 64, false};
  f.views.b = {host_bytes(b), 32, 64, 32, false};
  f.run<cuda::F32>(
      [](auto& e, auto& w, const Views& v) { e.run(kFull, nn(w.a, w.b), store(v.c)); });
  EXPECT_TRUE(Near(
      f.c,
      [&] {
        Numbers want;
        for (int i = 0; i < f.m; ++i) {
          for (int j = 0; j < f.n; ++j) {
            double sum = 0;
            for (int k = 0; k < 64; ++k) {
              sum += double{host<float>(a)[i * 64 + k]} * host<float>(b)[k * 32 + j];
            }
            want.push_back(sum);
          }
        }
        return want;
      }(),
      kExact));
}

TEST(CudaEngine, AddsProductsAroundMaps) {
  for_all([]<class Element>(auto& f) {
    f.template run<Element>([](auto& e, auto& w, const Views& v) {
      const auto twice = map([](auto, auto, auto x) { return x * 2.0f; });
      e.run(kFull, nn(w.a, w.b), twice, nt(w.a, w.b_turned), store(v.c));
    });
    EXPECT_TRUE(Near(f.c, f.entries([&](int i, int j, int k) {
      return f.at(f.a, i, k) * (2 * f.at(f.b, k, j) + f.at(f.b_turned, j, k));
    }),
                     kExact));
  });
}

// Blocks outside the band are put as zeros, so a later product may skip them or not.
TEST(CudaEngine, KeepsTheBandAndZeroElsewhere) {
  for_all([]<class Element>(auto& f) {
    for (const Band band : {kLower, Band{-2, 3}, Band{1, kFar}, Band{4, 9}, Band{-90, -50}}) {
      f.views.band = band;
      f.template run<Element>([](auto& e, auto& w, const Views& v) {
        e.run(v.band, nn(w.a, w.b), map([&](auto i, auto j, auto x) {
                return e.select(e.inside(v.band, i, j), x, 0.0f);
              }),
              put(w.c));
        e.run(kFull, take(w.c), store(v.c));
      });
      const double tolerance = std::is_same_v<Element, cuda::F32> ? kExact : kRounded;
      EXPECT_TRUE(Near(f.c, f.entries([&](int i, int j, int k) {
        const bool inside = j - i >= band.low && j - i <= band.high;
        return inside ? f.product(i, j, k) : 0.0;
      }),
                       tolerance));
    }
  });
}

// A banded factor, as stored or transposed, multiplied as if it were full and skipping its zeros.
template <class Engine, class S>
__global__ void multiply_banded(Band band, cuda::In a, cuda::Out full, cuda::Out skipped) {
  struct Square {
    typename Engine::template Operand<S, &S::m, &S::m, kA | kAt | kB | kBt> banded, other;
  };
  auto& memory = cuda::block_memory<cuda::Shared<Square>>();
  Engine e(memory.scratch);
  auto& [banded, other] = memory.space;
  e.load(banded, a,
         [&](auto i, auto j, auto x) { return e.select(e.inside(band, i, j), x, 0.0f); });
  e.load(other, a);
  const auto below = [&](const cuda::Out& view, int part) {
    cuda::Out to = view;
    to.data = static_cast<float*>(view.data) + part * view.rows * view.stride;
    return to;
  };
  e.run(kFull, nn(banded, other), store(below(full, 0)));
  e.run(kFull, nn(banded, other, Banded::kA, band), store(below(skipped, 0)));
  e.run(kFull, tn(banded, other), store(below(full, 1)));
  e.run(kFull, tn(banded, other, Banded::kA, band), store(below(skipped, 1)));
  e.run(kFull, nn(other, banded), store(below(full, 2)));
  e.run(kFull, nn(other, banded, Banded::kB, band), store(below(skipped, 2)));
  e.run(kFull, nt(other, banded), store(below(full, 3)));
  e.run(kFull, nt(other, banded, Banded::kB, band), store(below(skipped, 3)));
}

TEST(CudaEngine, SkippingZerosOfABandedFactorChangesNothing) {
  using S = Sizes<64, 64, 64>;
  using Engine = cuda::Engine<cuda::Bf16>;
  Rig rig(1);
  const Tensor a = rig.normal("a", {64, 64}), full = rig.exec.zeros({256, 64});
  const Tensor skipped = rig.exec.zeros({256, 64});
  const simt::Shape shape{1, cuda::kThreads, 2 * 64 * 72 * 2 + sizeof(cuda::Scratch)};
  for (const Band band : {kLower, kBelow, Band{-20, 3}, Band{17, kFar}, Band{-60, -33}}) {
    simt::launch(shape, multiply_banded<Engine, S>, band,
                 cuda::In{host_bytes(a), 64, 64, 64, false},
                 cuda::Out{host_bytes(full), 64, 64, 64, false},
                 cuda::Out{host_bytes(skipped), 64, 64, 64, false});
    EXPECT_TRUE(SameBits(full, skipped));
  }
}

// Padding takes part in reductions; here it holds 3 from the map.
template <class Words>
void check_reduction(Words words) {
  for_all([&]<class Element>(auto& f) {
    for (const Band band : {kFull, kLower, Band{-20, -3}}) {
      f.views.band = band;
      f.template run<Element>([words](auto& e, auto& w, const Views& v) {
        e.fill(w.rows, [&](auto) { return e.number(1.0f); });
        e.fill(w.sums, [&](auto) { return e.number(-2.0f); });
        const auto shifted = map([&](auto i, auto j, auto x) {
          return e.select(e.inside(v.band, i, j), x + 3.0f, -3.0f);
        });
        words.run(e, w, v, shifted);
        e.save(w.rows, v.rows);
        e.save(w.sums, v.sums);
      });
      words.check(f);
    }
  });
}
// Result of the map at (i, j), padding included; entries of skipped blocks count as nothing.
template <class F>
double shifted_entry(const F& f, int i, int j) {
  if (j - i < f.views.band.low || j - i > f.views.band.high) return -3;
  return 3 + (i < f.m && j < f.n ? double{host<float>(f.c)[i * f.n + j]} : 0.0);
}

struct RowSums {
  template <class E, class W, class M>
  void run(E& e, W& w, const Views& v, const M& shifted) const {
    e.run(kFull, nn(w.a, w.b), store(v.c), shifted, row_sum(w.rows));
  }
  template <class F>
  void check(F& f) const {
    Numbers want(f.m + 1, 1.0);
    for (int i = 0; i <= f.m; ++i) {
      for (int j = 0; j <= f.n; ++j) want[i] += shifted_entry(f, i, j);
    }
    EXPECT_TRUE(Near(f.rows, want, kExact));
  }
};
struct ColumnSums {
  template <class E, class W, class M>
  void run(E& e, W& w, const Views& v, const M& shifted) const {
    e.run(kFull, nn(w.a, w.b), store(v.c), shifted, column_sum(w.sums));
  }
  template <class F>
  void check(F& f) const {
    Numbers want(f.n + 1, -2.0);
    for (int j = 0; j <= f.n; ++j) {
      for (int i = 0; i <= f.m; ++i) want[j] += shifted_entry(f, i, j);
    }
    EXPECT_TRUE(Near(f.sums, want, kExact));
  }
};
// In a run over the band, blocks outside it say nothing.
struct ColumnMaxima {
  template <class E, class W, class M>
  void run(E& e, W& w, const Views& v, const M& shifted) const {
    e.run(kFull, nn(w.a, w.b), store(v.c));
    e.run(v.band, nn(w.a, w.b), shifted, column_max(w.sums));
  }
  template <class F>
  void check(F& f) const {
    Numbers want(f.n + 1, -2.0);
    for (int j = 0; j <= f.n; ++j) {
      for (int i = 0; i <= f.m; ++i) want[j] = std::max(want[j], shifted_entry(f, i, j));
    }
    EXPECT_TRUE(Near(f.sums, want, kExact));
  }
};

TEST(CudaEngine, SumsRows) { check_reduction(RowSums{}); }
TEST(CudaEngine, SumsColumns) { check_reduction(ColumnSums{}); }
TEST(CudaEngine, FindsMaximaOfColumns) { check_reduction(ColumnMaxima{}); }

TEST(CudaEngine, StoresTransposedAndTakesWhatWasPut) {
  for_all([]<class Element>(auto& f) {
    f.template run<Element>([](auto& e, auto& w, const Views& v) {
      e.clear(w.c);
      e.run(kFull, nn(w.a, w.b), put(w.c));
      e.run(kFull, take(w.c), map([](auto, auto, auto x) { return x + x; }), put(w.c), store(v.c),
            store_turned(v.c_turned));
    });
    for (int i = 0; i < f.m; ++i) {
      for (int j = 0; j < f.n; ++j) {
        ASSERT_EQ(host<float>(f.c)[i * f.n + j], host<float>(f.turned)[j * f.m + i]);
      }
    }
    EXPECT_TRUE(Near(f.c, f.entries([&](int i, int j, int k) { return 2 * f.product(i, j, k); }),
                     std::is_same_v<Element, cuda::F32> ? kExact : kRounded));
  });
}

// One block: sums along a vector in both directions, its total, and the product of two views.
template <int size>
__global__ void vectors(cuda::InVector from, cuda::OutVector to, cuda::In a, cuda::In b) {
  struct Space {
    cuda::Vector<size> v;
  };
  auto& memory = cuda::block_memory<cuda::Shared<Space>>();
  cuda::Engine<cuda::F32> e(memory.scratch);
  auto& v = memory.space.v;
  const auto next = [&](int part) { return cuda::OutVector{to.data + part * size, 1, size}; };
  e.load(v, from);
  e.cumsum(v);
  e.save(v, next(0));
  e.load(v, from);
  e.add_to_last(v, 100.0f);
  e.reverse_cumsum(v);
  e.save(v, next(1));
  const float total = e.total(v), inner = e.inner_product(a, b);
  e.fill(v, [&](auto i) { return i % 2 == 0 ? total : inner; });
  e.save(v, next(2));
}

template <int size>
void check_vectors() {
  Rig rig(1);
  const Tensor from = rig.normal("v", {size}), to = rig.exec.empty({3 * size});
  const Tensor a = rig.normal("a", {37, 11}), b = rig.normal("b", {37, 11});
  simt::launch(
      {1, cuda::kThreads, sizeof(cuda::Vector<size>) + sizeof(cuda::Scratch)}, vectors<size>,
      cuda::InVector{host<float>(from), 1, size - 3}, cuda::OutVector{host<float>(to), 1, 3 * size},
      cuda::In{host_bytes(a), 11, 37, 11, false}, cuda::In{host_bytes(b), 11, 37, 11, false});
  Numbers want(3 * size);
  double sum = 0, total = 0, inner = 0;
  for (int i = 0; i < size; ++i) want[i] = sum += i < size - 3 ? host<float>(from)[i] : 0.0f;
  sum = 100;
  for (int i = size - 1; i >= 0; --i) {
    total += want[size + i] = sum += i < size - 3 ? host<float>(from)[i] : 0.0f;
  }
  for (int i = 0; i < 37 * 11; ++i) inner += double{host<float>(a)[i]} * host<float>(b)[i];
  for (int i = 0; i < size; ++i) want[2 * size + i] = i % 2 == 0 ? total : inner;
  EXPECT_TRUE(Near(to, want, kExact));
}

TEST(CudaEngine, SumsAlongVectors) {
  check_vectors<16>();
  check_vectors<48>();
  check_vectors<64>();
  check_vectors<128>();
}

}  // namespace
}  // namespace weft::test
