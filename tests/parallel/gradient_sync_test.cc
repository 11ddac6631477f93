#include "parallel/gradient_sync.h"
#include "core/host_access.h"
#include "parallel/parameter_values.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/comm/thread_comm.h"
#include "parallel/optimizer.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

// Dense weights, experts that live on one rank each, a norm with partial gradients, more ranks than
// rows, a buffer.
std::vector<ParameterSpec> specs() {
  return {{.name = "a", .global = {7, 5}},
          {.name = "experts",
           .global = {4, 3, 2},
           .splits = {{.dim = 0, .axis = Axis::kExpert}},
           .expert = true},
          {.name = "b", .global = {2, 33}},
          {.name = "rows", .global = {6, 4}, .splits = {{.dim = 0, .axis = Axis::kTensor}}},
          {.name = "norm", .global = {9}, .partial_over = {Axis::kTensor}},
          {.name = "buffer", .global = {5}, .buffer = true},
          {.name = "c", .global = {1}}};
}

// A whole number for (rank, parameter, global element): sums are exact.
float part_of_gradient(int rank, size_t parameter, int64_t element) {
  return static_cast<float>((rank * 31 + static_cast<int>(parameter) * 17 + element * 7) % 23 - 11);
}

struct Case {
  ParallelConfig degrees;
  int world;
};

std::vector<int64_t> global_elements(const Parameter& p) {
  std::vector<int64_t> out;
  for (const Slice& slice : p.slices) {
    for (int64_t i = 0; i < slice.extent.elements(); ++i) {
      int64_t index = 0, stride = 1, rest = i;
      for (int dim = p.spec.global.dims() - 1; dim >= 0; --dim) {
        index += (slice.offset[dim] + rest % slice.extent[dim]) * stride;
        rest /= slice.extent[dim];
        stride *= p.spec.global[dim];
      }
      out.push_back(index);
    }
  }
  return out;
}

// Every owned element becomes the sum over exactly the ranks that hold it and see other tokens (or
// hold partial sums); and the norm counts every element of the global gradient once, under every
// layout.
TEST(GradientSync, SumsGradientsOverThoseWhoHoldThem) {
  const std::vector<Case> cases = {
      {{}, 1}, {{}, 3}, {{.expert = 4}, 4}, {{.tensor = 2, .expert = 2}, 4}};
  for (const auto& [degrees, world_size] : cases) {
    for (const Zero zero : {Zero::kWhole, Zero::kSharded}) {
      run_ranks(world_size, [&](ThreadComm& world, Exec& exec) {
        const Splitter split = [&](int color, int key, const std::string& axis) {
          return world.split(color, key, axis);
        };
        const Layout layout{degrees, world.rank(), world_size,
                            coordinates_of(degrees, world.rank(), world_size)};
        const auto mesh = std::make_shared<Mesh>(layout, split, Signatures::kCompare);
        Ledger ledger;
        Pool pool{ledger};
        ParameterStore store(layout.here);
        for (const ParameterSpec& spec : specs()) store.declare(spec);
        store.allocate(pool, DType::kF32, ParameterStore::Gradients::kAllocate);
        zero_gradients(exec, store);
        for (size_t i = 0; i < store.all().size(); ++i) {
          Parameter& p = store.all()[i];
          const auto elements = global_elements(p);
          for (size_t e = 0; e < elements.size() && !p.spec.buffer; ++e) {
            host<float>(p.grad)[e] = part_of_gradient(world.rank(), i, elements[e]);
          }
        }
        GradientSync sync(store, *mesh, zero);
        const Optimizer optimizer(store, pool, {}, mesh, sync);
        sync.reduce_gradients(exec);
        double squares = 0;  // of the whole gradient, from all ranks' parts
        for (size_t i = 0; i < store.all().size(); ++i) {
          Parameter& p = store.all()[i];
          if (p.spec.buffer) continue;
          const auto sum_at = [&](int64_t element, const Layout& at) {
            std::vector<Axis> axes = p.spec.expert ? std::vector{Axis::kExpertData}
                                                   : std::vector{Axis::kData, Axis::kSequence};
            axes.insert(axes.end(), p.spec.partial_over.begin(), p.spec.partial_over.end());
            float sum = 0;
            for (const int r : at.group(axes)) sum += part_of_gradient(r, i, element);
            return sum;
          };
          const Ownership own = ownership_of(p.spec, layout.here, zero);
          const auto elements = global_elements(p);
          const int64_t width = row_width(p.shape);
          for (int64_t e = own.rows.begin * width; e < own.rows.end * width; ++e) {
            EXPECT_EQ(host<float>(p.grad)[e], sum_at(elements[static_cast<size_t>(e)], layout))
                << p.spec.name;
          }
          std::vector<bool> seen(static_cast<size_t>(p.spec.global.elements()));
          for (int r = 0; r < world_size; ++r) {
            const Layout there{degrees, r, world_size, coordinates_of(degrees, r, world_size)};
            Parameter other;
            other.spec = p.spec;
            other.slices = slices_of(p.spec, there.here);
            for (const int64_t element : global_elements(other)) {
              if (seen[static_cast<size_t>(element)]) continue;
              seen[static_cast<size_t>(element)] = true;
              squares += std::pow(static_cast<double>(sum_at(element, there)), 2);
            }
          }
        }
        std::vector<double> beside = {static_cast<double>(layout.rank), -7};
        EXPECT_DOUBLE_EQ(optimizer.gradient_norm(exec, beside), std::sqrt(squares));
        EXPECT_EQ(beside,
                  (std::vector<double>{world_size * (world_size - 1) / 2.0, -7.0 * world_size}));
        EXPECT_DOUBLE_EQ(optimizer.gradient_norm(exec), std::sqrt(squares));
      });
    }
  }
}

}  // namespace
}  // namespace weft::test
