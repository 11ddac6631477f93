#include "launcher/verify/golden_lasp2.h"

#include <cmath>
#include <cstring>
#include <mutex>

#include "core/host_access.h"
#include "layers/recurrence/delta.h"
#include "layers/recurrence/diagonal.h"
#include "layers/recurrence/rank_one.h"
#include "layers/recurrence/scalar.h"
#include "parallel/comm/thread_comm.h"

namespace weft {
namespace {

// Combined results of the ranks: segments first, as in the file.
struct Found {
  Tensor y;                     // [batch * tokens, heads * dv] f32
  Tensor phi, delta, state_in;  // [segments, batch, heads, dk, dk or dv]
  Tensor state;                 // [batch, heads, dk, dv]
};

// This rank's tokens of an input [batch, tokens, ...]: rows [batch * own tokens, the rest].
Tensor own_rows(Exec& exec, const GoldenCase& golden, const std::string& key, DType type,
                const Sequence& sequence) {
  const Shape& shape = golden.shape(key);
  const Tensor all = golden.read(exec, key, type);
  const auto span = sequence.spans[static_cast<size_t>(sequence.ranks->rank())];
  const int64_t batch = shape[0], tokens = shape[1], width = all.elements() / (batch * tokens);
  const int64_t count = span.end - span.begin;
  const Tensor mine = exec.empty({batch * count, width}, type);
  const auto bytes = static_cast<size_t>(count * width * size_of(type));
  for (int64_t b = 0; b < batch; ++b) {
    std::memcpy(static_cast<char*>(host_bytes(mine)) + static_cast<size_t>(b) * bytes,
                static_cast<const char*>(host_bytes(all)) +
                    (b * tokens + span.begin) * width * size_of(type),
                bytes);
  }
  return mine;
}

// A summary's transition as a matrix: its image of the identity.
Tensor matrix_of(Exec& exec, const SpanRecord& record) {
  const Shape& s = record.summary.update[0].shape();
  const Shape square{s[0], s[1], s[2], s[2]};
  const Tensor identity = exec.zeros(square);
  for (int64_t n = 0; n < s[0] * s[1]; ++n) {
    for (int64_t i = 0; i < s[2]; ++i) {
      host<float>(identity)[(n * s[2] + i) * s[2] + i] = 1.0f;
    }
  }
  return record.algebra->apply(
      exec, {record.summary.transition, {exec.zeros(square)}, record.summary.weights},
      {identity})[0];
}

void put(const Tensor& from, const Tensor& to, int64_t part) {
  std::memcpy(host<float>(to) + part * from.elements(), host<float>(from),
              static_cast<size_t>(from.bytes()));
}

void put_rows(const Tensor& from, const Sequence& sequence, int64_t batch, const Tensor& to) {
  const auto span = sequence.spans[static_cast<size_t>(sequence.ranks->rank())];
  const int64_t width = to.shape()[1], count = span.end - span.begin;
  const int64_t tokens = to.shape()[0] / batch;
  for (int64_t i = 0; i < from.elements(); ++i) {
    const int64_t row = i / width, b = row / count;
    const float x =
        from.dtype() == DType::kF32 ? host<float>(from)[i] : to_float(host<bf16>(from)[i]);
    host<float>(to)[(b * tokens + span.begin + row % count) * width + i % width] = x;
  }
}

// inputs(exec, sequence, hold) returns the rule's inputs for one rank's tokens.
template <class Rule, class Inputs>
void over_segments(Exec& exec, const GoldenCase& golden, Comparison& compare, const Rule& rule,
                   Inputs inputs) {
  const auto segments = golden.config.at("segments").get<int>();
  const Shape& v = golden.shape("in.v");
  std::vector<int32_t> documents;
  for (int64_t b = 0; b <= v[0]; ++b) documents.push_back(static_cast<int32_t>(b * v[1]));
  const auto result = [&](const char* key) { return exec.empty(golden.shape(key)); };
  const Found found{exec.empty({v[0] * v[1], v[2] * v[3]}), result("out.segment_phi"),
                    result("out.segment_delta"), result("out.segment_state_in"),
                    result("out.state.0")};
  std::mutex mutex;
  run_ranks(segments, [&](ThreadComm& comm, Exec& own) {
    Sequence sequence = make_sequence(documents, v[0], comm);
    std::vector<SpanRecord> records;
    sequence.records = &records;
    std::vector<Tensor> hold;
    SavedStack saved;
    const Tensor out = rule.forward(own, inputs(own, sequence, hold), sequence, nullptr, saved);
    const SpanRecord& record = records.at(0);
    const Tensor phi = matrix_of(own, record);
    const std::lock_guard lock(mutex);
    put_rows(out, sequence, v[0], found.y);
    put(phi, found.phi, comm.rank());
    put(record.summary.update[0], found.delta, comm.rank());
    put(record.entering[0], found.state_in, comm.rank());
    if (comm.rank() + 1 == segments) put(record.leaving[0], found.state, 0);
  });
  compare.check(exec, "out.y", found.y);
  compare.check(exec, "out.segment_phi", found.phi);
  compare.check(exec, "out.segment_delta", found.delta);
  compare.check(exec, "out.segment_state_in", found.state_in);
  compare.check(exec, "out.state.0", found.state);
}

}  // namespace

bool is_lasp2(const GoldenCase& golden) { return golden.kind == "lasp2"; }

void run_lasp2(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const bool reads_r = golden.has("in.r");
  const std::string q_key = reads_r ? "in.r" : "in.q";
  const Shape &q = golden.shape(q_key), &v = golden.shape("in.v");
  const HeadOptions heads{.heads = q[2], .kv_heads = q[2], .dk = q[3], .dv = v[3]};
  const float scale = reads_r ? 1.0f : 1.0f / std::sqrt(static_cast<float>(q[3]));
  // Views stay valid while `hold` has their tensors; inputs that a case lacks stay absent.
  const auto read = [&](Exec& own, const Sequence& sequence, std::vector<Tensor>& hold,
                        const std::string& key, DType type) -> ConstView {
    if (!golden.has(key)) return {};
    hold.push_back(own_rows(own, golden, key, type, sequence));
    return hold.back();
  };
  const auto part = [&](const std::string& key, DType type) {
    return [&, key, type](Exec& own, const Sequence& s, std::vector<Tensor>& hold) {
      return read(own, s, hold, key, type);
    };
  };
  const auto pq = part(q_key, golden.precision), pk = part("in.k", golden.precision),
             pv = part("in.v", golden.precision), pg = part("in.g", DType::kF32);
  const std::string& name = golden.mixer;
  if (name == "linear" || name == "scalar_decay") {
    over_segments(exec, golden, compare, ScalarRecurrence({.heads = heads, .scale = scale}),
                  [&](Exec& e, const Sequence& s, std::vector<Tensor>& h) {
                    return ScalarInputs{pq(e, s, h), pk(e, s, h), pv(e, s, h), pg(e, s, h)};
                  });
  } else if (name == "diag_decay") {
    over_segments(exec, golden, compare, DiagonalRecurrence({.heads = heads, .scale = scale}),
                  [&](Exec& e, const Sequence& s, std::vector<Tensor>& h) {
                    return DiagonalInputs{pq(e, s, h), pk(e, s, h), pv(e, s, h), pg(e, s, h)};
                  });
  } else if (name == "deltanet" || name == "gated_deltanet") {
    const auto beta = part("in.beta", DType::kF32);
    over_segments(
        exec, golden, compare,
        DeltaRecurrence({heads.heads, heads.heads, heads.dk, heads.dv, scale}),
        [&](Exec& e, const Sequence& s, std::vector<Tensor>& h) {
          return DeltaInputs{pq(e, s, h), pk(e, s, h), pv(e, s, h), beta(e, s, h), pg(e, s, h)};
        });
  } else if (name == "rwkv7") {
    const auto alpha = part("in.alpha", golden.precision), beta = part("in.beta", golden.precision);
    over_segments(exec, golden, compare,
                  RankOneRecurrence({heads.heads, heads.dk, heads.dv, scale}),
                  [&](Exec& e, const Sequence& s, std::vector<Tensor>& h) {
                    return RankOneInputs{pq(e, s, h), pk(e, s, h),    pv(e, s, h),
                                         pg(e, s, h), alpha(e, s, h), beta(e, s, h)};
                  });
  } else {
    throw ConfigError("lasp2 {} is not supported", name);
  }
}

}  // namespace weft
