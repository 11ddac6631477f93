#include "core/parameter.h"
#include "core/host_access.h"
#include "parallel/parameter_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

// Every rank of a mesh with the given sizes along the given axes.
struct Degree {
  Axis axis;
  int size;
};

void for_each_rank(const std::vector<Degree>& mesh,
                   const std::function<void(const Coordinates&)>& visit) {
  int ranks = 1;
  for (const Degree& degree : mesh) ranks *= degree.size;
  for (int rank = 0; rank < ranks; ++rank) {
    Coordinates here;
    int rest = rank;
    for (const Degree& degree : mesh) {
      here[degree.axis] = {rest % degree.size, degree.size};
      rest /= degree.size;
    }
    visit(here);
  }
}

// Flat global indices of a rank's elements, in the order of its local tensor: the slices stacked
// along `stacked`, written as plain loops.
std::vector<int64_t> local_to_global(const ParameterSpec& spec, const Coordinates& here,
                                     int stacked) {
  const Shape local = local_shape(spec, here);
  std::vector<int64_t> out;
  for (int64_t flat = 0; flat < local.elements(); ++flat) {
    Shape at = local;
    int64_t rest = flat;
    for (int dim = local.dims() - 1; dim >= 0; --dim) {
      at[dim] = rest % local[dim];
      rest /= local[dim];
    }
    for (const Slice& slice : slices_of(spec, here)) {
      if (at[stacked] >= slice.extent[stacked]) {
        at[stacked] -= slice.extent[stacked];
        continue;
      }
      int64_t index = 0;
      for (int dim = 0; dim < local.dims(); ++dim) {
        index = index * spec.global[dim] + slice.offset[dim] + at[dim];
      }
      out.push_back(index);
      break;
    }
  }
  return out;
}

struct SplitCase {
  std::string name;
  ParameterSpec spec;
  std::vector<Degree> mesh;
  int copies;  // number of ranks that hold each element
  int stacked = 0;

  friend void PrintTo(const SplitCase& c, std::ostream* out) { *out << c.spec.global.elements(); }
};

ParameterSpec spec_of(Shape global, std::vector<Split> splits) {
  ParameterSpec spec;
  spec.name = "weight";
  spec.global = global;
  spec.splits = std::move(splits);
  spec.init = Init::normal(1.0);
  return spec;
}

std::vector<SplitCase> split_cases() {
  const Axis tp = Axis::kTensor, ep = Axis::kExpert, etp = Axis::kExpertTensor;
  return {
      {"Whole", spec_of({7, 5}, {}), {{tp, 1}}, 1},
      {"ReplicatedOverAnAxisThatCutsNothing", spec_of({7, 5}, {}), {{tp, 3}}, 3},
      {"Rows", spec_of({8, 5}, {{.dim = 0, .axis = tp}}), {{tp, 4}}, 1},
      {"Columns", spec_of({5, 8}, {{.dim = 1, .axis = tp}}), {{tp, 4}}, 1},
      {"UnevenRows", spec_of({7, 3}, {{.dim = 0, .axis = tp}}), {{tp, 4}}, 1},      // 2 2 2 1
      {"SomeRanksEmpty", spec_of({5, 3}, {{.dim = 0, .axis = tp}}), {{tp, 4}}, 1},  // 2 2 1 0
      {"FewerRowsThanRanks", spec_of({2, 3}, {{.dim = 0, .axis = tp}}), {{tp, 5}}, 1},
      {"NoRows", spec_of({0, 3}, {{.dim = 0, .axis = tp}}), {{tp, 2}}, 1},
      {"Vector", spec_of({11}, {{.dim = 0, .axis = tp}}), {{tp, 3}}, 1},
      {"GateAndUp", spec_of({12, 5}, {{.dim = 0, .axis = tp, .blocks = {6, 6}}}), {{tp, 2}}, 1},
      {"UnevenBlocks",
       spec_of({13, 3}, {{.dim = 0, .axis = tp, .blocks = {7, 1, 5}}}),
       {{tp, 3}},
       1},
      {"BlocksOfColumns",
       spec_of({3, 10}, {{.dim = 1, .axis = tp, .blocks = {4, 6}}}),
       {{tp, 2}},
       1,
       1},
      {"WholeHeads", spec_of({24, 5}, {{.dim = 0, .axis = tp, .unit = 8}}), {{tp, 2}}, 1},  // 2 1
      {"FewerKvHeadsThanRanks",
       spec_of({16, 5}, {{.dim = 0, .axis = tp, .replicas = 2, .unit = 8}}),
       {{tp, 4}},
       2},
      {"OneKvHeadForAll",
       spec_of({8, 5}, {{.dim = 0, .axis = tp, .replicas = 3, .unit = 8}}),
       {{tp, 3}},
       3},
      {"BlocksUnitsAndReplicasTogether",
       spec_of({24, 3}, {{.dim = 0, .axis = tp, .blocks = {16, 8}, .replicas = 2, .unit = 4}}),
       {{tp, 4}},
       2},
      {"ReplicatedOverData",
       spec_of({8, 5}, {{.dim = 0, .axis = tp}}),
       {{tp, 2}, {Axis::kData, 3}},
       3},
      {"ExpertsAndTheirColumns",
       spec_of({4, 6, 5}, {{.dim = 0, .axis = ep}, {.dim = 2, .axis = etp}}),
       {{ep, 2}, {etp, 2}},
       1},
      {"ExpertsWithGateAndUp",
       spec_of({4, 12, 3}, {{.dim = 0, .axis = ep}, {.dim = 1, .axis = etp, .blocks = {6, 6}}}),
       {{ep, 2}, {etp, 2}},
       1,
       1},
      {"OneDimOverTwoAxes",
       spec_of({12, 3}, {{.dim = 0, .axis = ep}, {.dim = 0, .axis = etp}}),
       {{ep, 2}, {etp, 3}},
       1},
  };
}

class Slices : public testing::TestWithParam<SplitCase> {};

TEST_P(Slices, OfAllRanksTileTheGlobalTensor) {
  const SplitCase& c = GetParam();
  std::vector<int> held(static_cast<size_t>(c.spec.global.elements()), 0);
  for_each_rank(c.mesh, [&](const Coordinates& here) {
    for (const int64_t index : local_to_global(c.spec, here, c.stacked)) {
      ++held[static_cast<size_t>(index)];
    }
  });
  for (size_t i = 0; i < held.size(); ++i) ASSERT_EQ(held[i], c.copies) << "element " << i;
}

TEST_P(Slices, AddUpToTheLocalShape) {
  const SplitCase& c = GetParam();
  for_each_rank(c.mesh, [&](const Coordinates& here) {
    int64_t elements = 0;
    for (const Slice& slice : slices_of(c.spec, here)) {
      elements += slice.extent.elements();
      for (int dim = 0; dim < c.spec.global.dims(); ++dim) {
        EXPECT_LE(slice.offset[dim] + slice.extent[dim], c.spec.global[dim]);
      }
    }
    EXPECT_EQ(local_shape(c.spec, here).elements(), elements);
  });
}

TEST_P(Slices, StartWithTheNumbersOfTheUncutTensor) {
  const SplitCase& c = GetParam();
  Rig rig;
  ParameterStore whole;
  Parameter& reference = whole.declare(c.spec);
  whole.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
  initialize(rig.exec, whole, 11);
  for_each_rank(c.mesh, [&](const Coordinates& here) {
    ParameterStore store(here);
    Parameter& p = store.declare(c.spec);
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
    initialize(rig.exec, store, 11);
    const std::vector<int64_t> global = local_to_global(c.spec, here, c.stacked);
    ASSERT_EQ(static_cast<int64_t>(global.size()), p.value.elements());
    for (size_t i = 0; i < global.size(); ++i) {
      ASSERT_EQ(host<float>(p.value)[i], host<float>(reference.value)[global[i]]) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Splits, Slices, testing::ValuesIn(split_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Slices, OfUnevenExtentsAreFullFirst) {
  const ParameterSpec spec = spec_of({50257, 4}, {{.dim = 0, .axis = Axis::kTensor}});
  std::vector<int64_t> rows;
  for_each_rank({{Axis::kTensor, 4}},
                [&](const Coordinates& here) { rows.push_back(local_shape(spec, here)[0]); });
  EXPECT_EQ(rows, (std::vector<int64_t>{12565, 12565, 12565, 12562}));
}

TEST(Slices, RefuseWhatCannotBeCut) {
  Coordinates here;
  here[Axis::kTensor] = {1, 4};
  const auto slices = [&](Shape global, Split split) {
    return slices_of(spec_of(global, {std::move(split)}), here);
  };
  EXPECT_THROW(slices({10, 2}, {.dim = 0, .unit = 4}), Error);         // half a head
  EXPECT_THROW(slices({10, 2}, {.dim = 0, .blocks = {4, 4}}), Error);  // blocks leave two rows
  EXPECT_THROW(slices({10, 2}, {.dim = 0, .replicas = 3}), Error);     // 4 ranks in threes
  EXPECT_THROW(
      slices_of(spec_of({4, 4}, {{.dim = 0, .blocks = {2, 2}}, {.dim = 1, .blocks = {2, 2}}}),
                here),
      Error);
}

struct StoreTest : testing::Test {
  Rig rig;
  ParameterStore store;

  Parameter& declare(const std::string& name, Shape shape, Init init = Init::normal(1.0),
                     bool f32 = false) {
    ParameterSpec spec;
    spec.name = name;
    spec.global = shape;
    spec.init = init;
    spec.f32 = f32;
    return store.declare(spec);
  }
  void allocate(DType compute) {
    store.allocate(rig.pool, compute, ParameterStore::Gradients::kAllocate);
  }
};

TEST_F(StoreTest, KeepsReferencesAndFindsByName) {
  Parameter& first = declare("first", {3});
  for (int i = 0; i < 100; ++i) declare(fmt::format("p{}", i), {5, i});
  EXPECT_EQ(store.find("first"), &first);
  EXPECT_EQ(store.find("p99")->shape, (Shape{5, 99}));
  EXPECT_EQ(store.find("nobody"), nullptr);
}

TEST_F(StoreTest, RefusesTheSameNameTwiceAndLateDeclarations) {
  declare("a", {3});
  EXPECT_THROW(declare("a", {4}), Error);
  allocate(DType::kF32);
  EXPECT_THROW(declare("b", {4}), Error);
}

TEST_F(StoreTest, CountsItsBytesByLabel) {
  declare("a", {100, 48});
  allocate(DType::kBF16);
  const auto pages = [](int64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  EXPECT_EQ(rig.ledger.of(Label::kParameters).live, pages(4800 * 2));
  EXPECT_EQ(rig.ledger.of(Label::kMaster).live, pages(4800 * 4));
  EXPECT_EQ(rig.ledger.of(Label::kGradients).live, pages(4800 * 4));
}

TEST_F(StoreTest, InF32TheMasterIsTheValue) {
  Parameter& p = declare("a", {7});
  allocate(DType::kF32);
  EXPECT_EQ(host_bytes(p.value), host_bytes(p.master));
  EXPECT_EQ(rig.ledger.of(Label::kMaster).live, 0);
}

TEST_F(StoreTest, InBf16ValuesAreRoundedMastersUnlessTheSpecAsksForF32) {
  Parameter& weight = declare("weight", {7, 3});
  Parameter& norm = declare("norm", {7}, Init::normal(1.0), /*f32=*/true);
  allocate(DType::kBF16);
  initialize(rig.exec, store, 5);
  EXPECT_EQ(weight.value.dtype(), DType::kBF16);
  for (int64_t i = 0; i < weight.value.elements(); ++i) {
    EXPECT_EQ(host<bf16>(weight.value)[i], to_bf16(host<float>(weight.master)[i]));
  }
  EXPECT_EQ(norm.value.dtype(), DType::kF32);
  EXPECT_EQ(host_bytes(norm.value), host_bytes(norm.master));
}

TEST_F(StoreTest, PublishingAdvancesVersionsSoThatPackedCopiesGoStale) {
  Parameter& p = declare("a", {40});
  allocate(DType::kBF16);
  initialize(rig.exec, store, 5);
  const uint64_t before = p.version;
  host<float>(p.master)[39] = 2.5f;
  publish(rig.exec, store);
  EXPECT_GT(p.version, before);
  EXPECT_EQ(to_float(host<bf16>(p.value)[39]), 2.5f);
}

TEST_F(StoreTest, StartsWeightsAsTheirSpecSays) {
  Parameter& zeros = declare("zeros", {100}, Init::zeros());
  Parameter& ones = declare("ones", {100}, Init::constant(1.0));
  Parameter& uniform = declare("uniform", {10000}, Init::uniform(-2, 3));
  Parameter& normal = declare("normal", {10000}, Init::normal(0.5));
  Parameter& rate = declare("rate", {10000}, Init::log_of_uniform(0, 16));
  Parameter& step = declare("step", {10000}, Init::time_step(1e-3, 1e-1));
  allocate(DType::kF32);
  initialize(rig.exec, store, 5);
  for (const double x : numbers(zeros.value)) ASSERT_EQ(x, 0);
  for (const double x : numbers(ones.value)) ASSERT_EQ(x, 1);
  double mean = 0, square = 0;
  for (const double x : numbers(uniform.value)) {
    ASSERT_GE(x, -2);
    ASSERT_LE(x, 3);
    mean += x / 10000;
  }
  for (const double x : numbers(normal.value)) square += x * x / 10000;
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(25.0 / 12 / 10000));  // five standard errors
  EXPECT_NEAR(square, 0.25, 5 * 0.25 * std::sqrt(2.0 / 10000));
  double rates = 0, steps = 0;
  for (const double x : numbers(rate.value)) {
    ASSERT_TRUE(std::isfinite(x));
    rates += std::exp(x) / 10000;
  }
  for (const double x : numbers(step.value)) steps += std::log(std::log1p(std::exp(x))) / 10000;
  EXPECT_NEAR(rates, 8.0, 5 * 16 / std::sqrt(12.0 * 10000));
  EXPECT_NEAR(steps, std::log(1e-2), 5 * std::log(100.0) / std::sqrt(12.0 * 10000));
}

// Checks rows of a wide matrix and columns of a tall one; no two matrices are equal.
TEST_F(StoreTest, StartsOrthogonalWeightsAtRightAngles) {
  Parameter& wide = declare("wide", {7, 30}, Init::orthogonal(0.5));
  Parameter& tall = declare("tall", {31, 6}, Init::orthogonal(2.0));
  Parameter& other = declare("other", {7, 30}, Init::orthogonal(0.5));
  Parameter& stack = declare("stack", {3, 7, 30}, Init::orthogonal(0.5));
  allocate(DType::kF32);
  initialize(rig.exec, store, 5);
  for (const Tensor& matrix :
       {wide.value, stack.value.row(0), stack.value.row(1), stack.value.row(2)}) {
    const std::vector<double> w = numbers(matrix);
    for (size_t a = 0; a < 7; ++a) {
      for (size_t b = 0; b < 7; ++b) {
        double product = 0;
        for (size_t c = 0; c < 30; ++c) product += w[a * 30 + c] * w[b * 30 + c];
        EXPECT_NEAR(product, a == b ? 0.25 : 0.0, 1e-6);
      }
    }
  }
  const std::vector<double> t = numbers(tall.value);
  for (size_t a = 0; a < 6; ++a) {
    for (size_t b = 0; b < 6; ++b) {
      double product = 0;
      for (size_t r = 0; r < 31; ++r) product += t[r * 6 + a] * t[r * 6 + b];
      EXPECT_NEAR(product, a == b ? 4.0 : 0.0, 1e-5);
    }
  }
  EXPECT_FALSE(SameBits(wide.value, other.value));
  EXPECT_FALSE(SameBits(stack.value.row(0), stack.value.row(1)));
}

TEST_F(StoreTest, StartsTheSameForAnyNumberOfThreads) {
  Parameter& p = declare("a", {3, 100003});  // several tasks of work, none full
  allocate(DType::kF32);
  initialize(rig.exec, store, 5);
  Rig alone(1);
  ParameterStore other;
  Parameter& q = other.declare(p.spec);
  other.allocate(alone.pool, DType::kF32, ParameterStore::Gradients::kNone);
  initialize(alone.exec, other, 5);
  EXPECT_TRUE(SameBits(p.value, q.value));
}

TEST_F(StoreTest, ZeroesGradientsOfEveryParameter) {
  Parameter& a = declare("a", {70001});
  Parameter& b = declare("b", {3});
  allocate(DType::kF32);
  for (Parameter* p : {&a, &b}) {
    for (int64_t i = 0; i < p->grad.elements(); ++i) host<float>(p->grad)[i] = 1;
  }
  zero_gradients(rig.exec, store);
  for (const Parameter* p : {&a, &b}) {
    for (const double x : numbers(p->grad)) ASSERT_EQ(x, 0);
  }
}

TEST_F(StoreTest, WithoutGradientsHasNoneToZero) {
  declare("a", {3});
  store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
  EXPECT_EQ(rig.ledger.of(Label::kGradients).live, 0);
  EXPECT_THROW(zero_gradients(rig.exec, store), Error);
}

class Joined : public StoreTest, public testing::WithParamInterface<DType> {};

TEST_P(Joined, NeighboursReadAsOneMatrix) {
  Parameter& q = declare("q", {4, 8});  // 32 elements: a multiple of 16, so that they touch
  Parameter& k = declare("k", {2, 8});
  Parameter& v = declare("v", {2, 8});
  allocate(GetParam());
  initialize(rig.exec, store, 5);
  const Tensor qkv = joined_values({&q, &k, &v});
  EXPECT_EQ(qkv.shape(), (Shape{8, 8}));
  EXPECT_TRUE(SameBits(qkv.row_range(0, 4), q.value));
  EXPECT_TRUE(SameBits(qkv.row_range(4, 2), k.value));
  EXPECT_TRUE(SameBits(qkv.row_range(6, 2), v.value));
  host<float>(joined_grads({&q, &k, &v}))[6 * 8 + 3] = 9;
  EXPECT_EQ(host<float>(v.grad)[3], 9);
}

INSTANTIATE_TEST_SUITE_P(Types, Joined, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_F(StoreTest, RefusesToJoinWhatDoesNotTouch) {
  Parameter& a = declare("a", {3, 8});  // 24 elements: eight of padding follow
  Parameter& b = declare("b", {2, 8});
  Parameter& narrow = declare("narrow", {4, 4});
  Parameter& last = declare("last", {2, 8});
  allocate(DType::kF32);
  EXPECT_THROW(joined_values({&a, &b}), Error);
  EXPECT_THROW(joined_values({&b, &narrow}), Error);
  EXPECT_THROW(joined_values({&b, &last}), Error);
  EXPECT_THROW(joined_values({}), Error);
  EXPECT_NO_THROW(joined_values({&a}));
}

}  // namespace
}  // namespace weft::test
