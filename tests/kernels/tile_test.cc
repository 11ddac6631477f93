// The CPU tile engine by itself, in the vectors this file is compiled for, and once more with AMX
// tiles emulated (WEFT_EMULATED_TILES); the programs on it are tested for every instruction set
// through their contracts.
#ifdef WEFT_EMULATED_TILES
#define WEFT_ISA_NAMESPACE tile_test_by_tiles
#else
#define WEFT_ISA_NAMESPACE tile_test
#endif
#include "core/host_access.h"
#include "kernels/tile/cpu.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

namespace isa = kernels::WEFT_ISA_NAMESPACE;
using namespace kernels::tile;
using Numbers = std::vector<double>;

struct Sizes {
  int64_t m_, n_, k_;
  int64_t m() const { return m_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
};

template <class Words>
struct Space {
  template <auto rows, auto columns, unsigned uses>
  using Op = isa::Operand<Words, Sizes, rows, columns, uses>;

  Op<&Sizes::m, &Sizes::k, kA> a;
  Op<&Sizes::k, &Sizes::m, kAt> a_turned;
  Op<&Sizes::k, &Sizes::n, kB> b;
  Op<&Sizes::n, &Sizes::k, kBt> b_turned;
  Op<&Sizes::m, &Sizes::n, kA | kAt | kB | kBt | kEntries> c;
  isa::Vector<Sizes, &Sizes::m> rows;
  isa::Vector<Sizes, &Sizes::n> sums, maxima;
  template <class F>
  void parts(F f) {
    f(a), f(a_turned), f(b), f(b_turned), f(c), f(rows), f(sums), f(maxima);
  }
};

In in(const Tensor& t) {
  return {host_bytes(t), t.shape().back(), t.shape()[0], t.shape().back(), t.dtype()};
}
Out out(const Tensor& t) {
  return {host_bytes(t), t.shape().back(), t.shape()[0], t.shape().back(), t.dtype()};
}

// Sizes around the strips: one, less than a vector, primes, several strips with every kind of rest.
const Sizes kSizes[] = {{1, 1, 1},   {3, 5, 2},    {4, 8, 7},    {8, 16, 3},  {13, 23, 31},
                        {32, 40, 8}, {70, 33, 17}, {33, 50, 67}, {16, 7, 96}, {64, 64, 64}};

// Numbers that bf16 holds, so that words of pairs are as exact as f32 ones.
Tensor halves(Rig& rig, std::string_view name, Shape shape) {
  Tensor t = rig.normal(name, shape);
  for (int64_t i = 0; i < t.elements(); ++i)
    host<float>(t)[i] = to_float(to_bf16(host<float>(t)[i]));
  return t;
}

template <class Words>
struct Fixture {
  explicit Fixture(const Sizes& s) : s(s) {
    const int64_t floats = isa::place(w, s, nullptr);
    memory = rig.exec.scratch({floats});
    isa::place(w, s, host<float>(memory));
    a = halves(rig, "a", {s.m(), s.k()});
    b = halves(rig, "b", {s.k(), s.n()});
    a_turned = halves(rig, "at", {s.k(), s.m()});
    b_turned = halves(rig, "bt", {s.n(), s.k()});
    c = rig.exec.zeros({s.m(), s.n()});
    e.load(w.a, in(a));
    e.load(w.b, in(b));
    e.load(w.a_turned, in(a_turned));
    e.load(w.b_turned, in(b_turned));
  }
  double at(const Tensor& t, int64_t i, int64_t j) const {
    return host<float>(t)[i * t.shape().back() + j];
  }
  template <class F>
  Numbers entries(F f) const {
    Numbers x;
    for (int64_t i = 0; i < s.m(); ++i) {
      for (int64_t j = 0; j < s.n(); ++j) {
        double sum = 0;
        for (int64_t k = 0; k < s.k(); ++k) sum += f(i, j, k);
        x.push_back(sum);
      }
    }
    return x;
  }

  Rig rig{1};
  Sizes s;
  isa::EngineOf<Words> e;
  Space<Words> w;
  Tensor memory, a, b, a_turned, b_turned, c;
};

template <class Words>
class TileEngine : public testing::Test {};
struct WordNames {
  template <class Words>
  static std::string GetName(int) {
    return std::string(Words::kPerWord == 1 ? "Floats" : "Pairs") +
           (isa::kByTiles ? "ByTiles" : "");
  }
};
using AllWords = testing::Types<isa::FloatWords<float>, isa::PairWords>;
TYPED_TEST_SUITE(TileEngine, AllWords, WordNames);

TYPED_TEST(TileEngine, MultipliesInAllForms) {
  for (const Sizes& s : kSizes) {
    Fixture<TypeParam> f(s);
    f.e.run(kFull, nn(f.w.a, f.w.b), store(out(f.c)));
    EXPECT_TRUE(Near(f.c, f.entries([&](int64_t i, int64_t j, int64_t k) {
      return f.at(f.a, i, k) * f.at(f.b, k, j);
    }),
                     1e-6));
    f.e.run(kFull, nt(f.w.a, f.w.b_turned), store(out(f.c)));
    EXPECT_TRUE(Near(f.c, f.entries([&](int64_t i, int64_t j, int64_t k) {
      return f.at(f.a, i, k) * f.at(f.b_turned, j, k);
    }),
                     1e-6));
    f.e.run(kFull, tn(f.w.a_turned, f.w.b), store(out(f.c)));
    EXPECT_TRUE(Near(f.c, f.entries([&](int64_t i, int64_t j, int64_t k) {
      return f.at(f.a_turned, k, i) * f.at(f.b, k, j);
    }),
                     1e-6));
  }
}

// Entries outside the band are zero, and the product may skip them: in each form the band is that
// of the operand as it is stored.
TYPED_TEST(TileEngine, SkippingZerosOfABandedFactorChangesNothing) {
  for (const Sizes& s : kSizes) {
    for (const Band band : {kLower, Band{-2, 3}, Band{1, kFar}, Band{4, 9}, Band{-40, -20}}) {
      Fixture<TypeParam> f(s);
      const auto inside = [&](auto i, auto j, auto x) {
        return f.e.select(f.e.inside(band, i, j), x, 0.0f);
      };
      const Tensor whole = f.rig.exec.zeros({s.m(), s.n()});
      const auto expect_same = [&](const auto& skipping, const auto& full, const char* what) {
        f.e.run(kFull, skipping, store(out(f.c)));
        f.e.run(kFull, full, store(out(whole)));
        EXPECT_TRUE(SameBits(f.c, whole)) << what << " " << band.low << " " << band.high;
      };
      f.e.load(f.w.a, in(f.a), inside);
      expect_same(nn(f.w.a, f.w.b, Banded::kA, band), nn(f.w.a, f.w.b), "a b");
      f.e.load(f.w.a_turned, in(f.a_turned), inside);
      expect_same(tn(f.w.a_turned, f.w.b, Banded::kA, band), tn(f.w.a_turned, f.w.b), "a^T b");
      f.e.load(f.w.a, in(f.a));
      f.e.load(f.w.b, in(f.b), inside);
      expect_same(nn(f.w.a, f.w.b, Banded::kB, band), nn(f.w.a, f.w.b), "a b, band in b");
      f.e.load(f.w.b_turned, in(f.b_turned), inside);
      expect_same(nt(f.w.a, f.w.b_turned, Banded::kB, band), nt(f.w.a, f.w.b_turned), "a b^T");
    }
  }
}

TYPED_TEST(TileEngine, AddsProductsAroundMaps) {
  for (const Sizes& s : kSizes) {
    Fixture<TypeParam> f(s);
    const auto twice = map([](auto, auto, auto x) { return x * 2.0f; });
    f.e.run(kFull, nn(f.w.a, f.w.b), twice, nt(f.w.a, f.w.b_turned), store(out(f.c)));
    EXPECT_TRUE(Near(f.c, f.entries([&](int64_t i, int64_t j, int64_t k) {
      return f.at(f.a, i, k) * (2 * f.at(f.b, k, j) + f.at(f.b_turned, j, k));
    }),
                     1e-6));
  }
}

// Whole strips outside the band are put as zeros, so a later product may skip them or not.
TYPED_TEST(TileEngine, KeepsTheBandAndZeroElsewhere) {
  for (const Sizes& s : kSizes) {
    for (const Band band : {kLower, Band{-2, 3}, Band{1, kFar}, Band{4, 9}}) {
      Fixture<TypeParam> f(s);
      f.e.run(band, nn(f.w.a, f.w.b), map([&](auto i, auto j, auto x) {
                return f.e.select(f.e.inside(band, i, j), x, 0.0f);
              }),
              put(f.w.c));
      f.e.run(kFull, take(f.w.c), store(out(f.c)));
      EXPECT_TRUE(Near(f.c, f.entries([&](int64_t i, int64_t j, int64_t k) {
        const bool inside = j - i >= band.low && j - i <= band.high;
        return inside ? f.at(f.a, i, k) * f.at(f.b, k, j) : 0.0;
      }),
                       1e-6));
    }
  }
}

TYPED_TEST(TileEngine, ReducesRowsAndColumnsWithoutThePadding) {
  for (const Sizes& s : kSizes) {
    Fixture<TypeParam> f(s);
    f.e.fill(f.w.rows, [&](auto) { return f.e.number(1.0f); });
    f.e.fill(f.w.sums, [&](auto) { return f.e.number(0.0f); });
    f.e.fill(f.w.maxima, [&](auto) { return f.e.number(-1e30f); });
    const auto shifted = map([](auto, auto, auto x) { return x + 3.0f; });
    f.e.run(kFull, nn(f.w.a, f.w.b), shifted, row_sum(f.w.rows), column_sum(f.w.sums),
            column_max(f.w.maxima), store(out(f.c)));
    Numbers rows(s.m(), 1.0), sums(s.n(), 0.0), maxima(s.n(), -1e30);
    for (int64_t i = 0; i < s.m(); ++i) {
      for (int64_t j = 0; j < s.n(); ++j) {
        rows[i] += f.at(f.c, i, j);
        sums[j] += f.at(f.c, i, j);
        maxima[j] = std::max(maxima[j], f.at(f.c, i, j));
      }
    }
    const auto got = [](const isa::Numbers& v) { return Numbers(v.data, v.data + v.size); };
    EXPECT_TRUE(Near(got(f.w.rows), rows, 1e-6));
    EXPECT_TRUE(Near(got(f.w.sums), sums, 1e-6));
    EXPECT_TRUE(Near(got(f.w.maxima), maxima, 0));
  }
}

TYPED_TEST(TileEngine, StoresTransposedAndTurnsWhatIsPut) {
  for (const Sizes& s : kSizes) {
    Fixture<TypeParam> f(s);
    const Tensor turned = f.rig.exec.zeros({s.n(), s.m()});
    f.e.run(kFull, nn(f.w.a, f.w.b), put(f.w.c), store(out(f.c)), store_turned(out(turned)));
    for (int64_t i = 0; i < s.m(); ++i) {
      for (int64_t j = 0; j < s.n(); ++j) {
        ASSERT_EQ(f.at(f.c, i, j), f.at(turned, j, i));
        if constexpr (TypeParam::kPerWord == 1) {
          ASSERT_EQ(f.at(f.c, i, j), f.w.c.turned[j * f.w.c.turned_stride + i]);
        } else {
          const auto* word =
              reinterpret_cast<const bf16*>(f.w.c.turned + j / 2 * f.w.c.turned_stride + i);
          ASSERT_EQ(to_bf16(static_cast<float>(f.at(f.c, i, j))).bits, word[j % 2].bits);
        }
      }
    }
  }
}

// Operands that a run puts, that are set entry by entry and that are loaded give equal products.
TYPED_TEST(TileEngine, PutsWhatProductsReadInEveryForm) {
  for (const Sizes& s : kSizes) {
    const Sizes square{s.m(), s.m(), s.m()};
    Fixture<TypeParam> f(square);
    const auto product = [&](const auto& step) {
      f.e.run(kFull, step, store(out(f.c)));
      return numbers(f.c);
    };
    const auto all = [&](const auto& c) {
      return std::vector<Numbers>{product(nn(c, f.w.b)), product(nt(c, f.w.b_turned)),
                                  product(tn(c, f.w.b)), product(nn(f.w.a, c)),
                                  product(nt(f.w.a, c))};
    };
    f.e.load(f.w.c, in(f.a_turned));
    const auto loaded = all(f.w.c);
    f.e.clear(f.w.c);
    f.e.run(kFull, take(in(f.a_turned)), put(f.w.c));
    EXPECT_EQ(loaded, all(f.w.c)) << "put, " << s.m();
    f.e.clear(f.w.c);
    for (int64_t i = 0; i < s.m(); ++i) {
      for (int64_t j = 0; j < s.m(); ++j)
        f.w.c.plain[i * f.w.c.stride + j] = static_cast<float>(f.at(f.a_turned, i, j));
    }
    f.e.settle(f.w.c);
    EXPECT_EQ(loaded, all(f.w.c)) << "set, " << s.m();
  }
}

// Entries in f32 and words for products live side by side where these round.
TYPED_TEST(TileEngine, KeepsEntriesApartFromFactors) {
  const Sizes s{7, 7, 7};
  Fixture<TypeParam> f(s);
  const Tensor fine = f.rig.normal("fine", {7, 7});
  auto entries = f.e.entries(f.w.c);
  auto factors = f.e.factors(f.w.c);
  f.e.run(kFull, take(in(fine)), put(entries));
  f.e.run(kFull, take(entries), store(out(f.c)));
  EXPECT_TRUE(SameBits(f.c, fine));
  f.e.run(kFull, take(entries), map([](auto, auto, auto x) { return x * 0.0f; }), put(factors));
  f.e.run(kFull, nn(f.w.a, factors), store(out(f.c)));
  for (const double x : numbers(f.c)) EXPECT_EQ(x, 0.0);
}

#ifndef WEFT_EMULATED_TILES
TEST(TileMaps, CheapExponentialAgreesBelowZero) {
  for (float x = 0; x > -100; x -= 0.37f) {
    const double want = x < -87.33654f ? 0.0 : std::exp(static_cast<double>(x));
    EXPECT_NEAR(isa::Engine::exp_down(isa::splat(x))[0], want, 2e-7 * want);
  }
  EXPECT_EQ(isa::Engine::exp_down(isa::splat(-1e30f))[0], 0.0f);
  EXPECT_TRUE(std::isnan(isa::Engine::exp_down(isa::splat(std::nanf("")))[0]));
}
#endif

}  // namespace
}  // namespace weft::test
