// Multi-head latent attention: keys and values of all heads come from one narrow latent per token.
//   c | r = kv_a_proj x            latent [kv_rank], and one key part [rope_width] for all heads
//   k_h = r | k_b_proj_h RMSNorm(c),   v_h = v_b_proj_h RMSNorm(c)
//   q_h = q_proj_h x    or    q_b_proj_h RMSNorm(q_a_proj x)              [rope_width | dk]
//   o_h = softmax(s q_h . k_h) v_h,   s = (dk + rope_width)^{-1/2},   y = o_proj o
// With `rope` the first rope_width channels of every query and key are rotated. Decoding keeps r
// and RMSNorm(c) of every token, and never forms keys and values (layers/recurrence/latent_rows.h).
#include <cmath>
#include <optional>

#include "kernels/rows/elementwise.h"
#include "kernels/rows/norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/basic/rotation.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/attention.h"
#include "layers/recurrence/latent_rows.h"

namespace weft {
namespace {

struct MlaOptions {
  int64_t heads = 0, dk = 0, dv = 0;
  int64_t rope_width = 0, kv_rank = 0, q_rank = 0;
  bool rope = false;
  RotationOptions rotation;
  double norm_eps = 1e-6;
};

void fields(FieldVisitor& f, MlaOptions& c) {
  f("heads", c.heads, "must be given", between(1, kLargestExtent));
  f("dk", c.dk, "width of the keys that come from the latent, per head; 0: hidden / heads",
    between(0, kLargestExtent));
  f("dv", c.dv, "value width per head; 0: hidden / heads", between(0, kLargestExtent));
  f("rope_width", c.rope_width, "width of the key part that all heads share; 0: none",
    between(0, kLargestExtent));
  f("kv_rank", c.kv_rank, "width of the latent; 0: a quarter of the hidden width",
    between(0, kLargestExtent));
  f("q_rank", c.q_rank, "width of the queries' own latent; 0: none, queries come from the input",
    between(0, kLargestExtent));
  f("rope", c.rope, "rotate the shared part by position");
  fields(f, c.rotation);
  f("norm_eps", c.norm_eps, "epsilon of the latents' norms", above(0));
}

Parameter& norm_weight(const MixerBuild& build, const char* name, int64_t width) {
  return build.store.declare({.name = build.scope + name,
                              .global = {width},
                              .partial_over = {Axis::kTensor},
                              .init = Init::constant(1.0),
                              .weight_decay = false,
                              .f32 = true});
}

class Mla final : public Mixer {
 public:
  Mla(const MixerBuild& build, const MlaOptions& o, const HeadOptions& heads)
      : o_(o),
        h_(heads),
        compute_(build.compute),
        hidden_(build.hidden),
        down_(build, {{"kv_a_proj", o.kv_rank + o.rope_width}}, build.hidden,
              {.partial_over = {Axis::kTensor}}),
        norm_(norm_weight(build, "kv_a_norm.weight", o.kv_rank)),
        up_(build, {{"k_b_proj", h_.heads * h_.dk, h_.dk}, {"v_b_proj", h_.heads * h_.dv, h_.dv}},
            o.kv_rank, {.cut = Linear::Cut::kRows}),
        rotation_(o.rotation, o.rope ? o.rope_width : 0, width()),
        rows_({whole_heads(), 1.0f / std::sqrt(static_cast<float>(width())), 0}),
        latent_rotation_(o.rotation, o.rope ? o.rope_width : 0, o.rope_width + o.kv_rank),
        latent_rows_({.heads = h_.heads,
                      .shared = o.rope_width,
                      .own = h_.dk,
                      .value = h_.dv,
                      .rank = o.kv_rank,
                      .scale = 1.0f / std::sqrt(static_cast<float>(width()))},
                     *build.store.find(build.scope + "k_b_proj.weight"),
                     *build.store.find(build.scope + "v_b_proj.weight")),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
    const bool direct = o.q_rank == 0;
    if (!direct) {
      q_down_.emplace(build, std::vector<Linear::Part>{{"q_a_proj", o.q_rank}}, build.hidden,
                      Linear::Options{.partial_over = {Axis::kTensor}});
      q_norm_ = &norm_weight(build, "q_a_norm.weight", o.q_rank);
    }
    query_.emplace(
        build,
        std::vector<Linear::Part>{{direct ? "q_proj" : "q_b_proj", h_.heads * width(), width()}},
        direct ? build.hidden : o.q_rank, Linear::Options{.cut = Linear::Cut::kRows});
  }

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    Saved f;
    f.q = query_->forward(exec, q_down_ ? query_latent(exec, x, f, saved) : x, compute_, saved);
    f.down = down_.forward(exec, x, compute_, saved);
    f.inv_rms = exec.empty({sequence.tokens(), 1});
    const Tensor latent = exec.empty({sequence.tokens(), o_.kv_rank}, compute_);
    kernels::head_norm_forward(exec, norm(), f.down.view().columns(0, o_.kv_rank), {}, norm_.value,
                               latent, f.inv_rms);
    const Tensor out = context.state != nullptr ? attend_to_latents(exec, latent, context, f, saved)
                                                : attend(exec, latent, sequence, f, saved);
    saved.push(std::move(f));
    return out_.forward(exec, out, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const Tensor d_out = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor dq = exec.empty(f.q.shape(), compute_),
                 d_down = exec.empty(f.down.shape(), compute_);
    const Tensor d_latent = context.state != nullptr
                                ? latents_backward(exec, context, f, d_out, dq, d_down, saved)
                                : attend_backward(exec, sequence, f, d_out, dq, d_down, saved);
    kernels::head_norm_backward(exec, norm(), d_latent, f.down.view().columns(0, o_.kv_rank), {},
                                norm_.value, f.inv_rms, d_down.view().columns(0, o_.kv_rank), {},
                                norm_.grad);
    const Tensor dx = down_.backward(exec, d_down, DType::kF32, saved);
    Tensor dx_query = query_->backward(exec, dq, DType::kF32, saved);
    if (q_down_) dx_query = query_latent_backward(exec, dx_query, f, saved);
    kernels::add(exec, dx, dx_query, dx);
    return dx;
  }

  double flops_per_token(int64_t length) const override {
    const int64_t queries = h_.heads * width();
    const int64_t q = o_.q_rank == 0 ? hidden_ * queries : o_.q_rank * (hidden_ + queries);
    const int64_t weights = q + hidden_ * (o_.kv_rank + o_.rope_width) +
                            o_.kv_rank * h_.heads * (h_.dk + h_.dv) + h_.heads * h_.dv * hidden_;
    return 2.0 * static_cast<double>(weights) + rows_.flops_per_token(length);
  }

 private:
  struct Saved {
    Tensor q_down, q_inv_rms;  // of the queries' latent; undefined without one
    Tensor q;                  // [tokens, heads * (shared | own)], rotated
    Tensor down;               // [tokens, latent | shared key]
    Tensor inv_rms;            // [tokens, 1]
    Tensor up;                 // [tokens, keys | values]
    Tensor k;                  // as q; with a cache [tokens, shared | latent], and no `up`
  };

  // Over the keys and values of all heads.
  Tensor attend(Exec& exec, const Tensor& latent, const Sequence& sequence, Saved& f,
                SavedStack& saved) const {
    f.up = up_.forward(exec, latent, compute_, saved);
    f.k = exec.empty({sequence.tokens(), h_.heads * width()}, compute_);
    for (int64_t h = 0; h < h_.heads; ++h) {
      if (o_.rope_width > 0) kernels::copy(exec, shared_key(f.down), shared_part(f.k, h));
      kernels::copy(exec, key(f.up, h), own_part(f.k, h));
    }
    rotation_.turn(exec, sequence, h_.heads, f.q, Rotation::Direction::kForward);
    rotation_.turn(exec, sequence, h_.heads, f.k, Rotation::Direction::kForward);
    return rows_.forward(exec, inputs(f), {}, sequence, nullptr, saved);
  }
  // Gradient of the latent, f32; those of the queries and of the shared key go to dq and d_down.
  Tensor attend_backward(Exec& exec, const Sequence& sequence, const Saved& f, const Tensor& d_out,
                         const Tensor& dq, const Tensor& d_down, SavedStack& saved) const {
    const Tensor dk = exec.empty(f.k.shape(), compute_), d_up = exec.empty(f.up.shape(), compute_);
    rows_.backward(exec, inputs(f), {}, sequence, d_out, nullptr, {dq, dk, values(d_up)}, saved);
    rotation_.turn(exec, sequence, h_.heads, dq, Rotation::Direction::kBackward);
    rotation_.turn(exec, sequence, h_.heads, dk, Rotation::Direction::kBackward);
    collect_keys(exec, dk, d_up, d_down);
    return up_.backward(exec, d_up, DType::kF32, saved);
  }

  // Over what a cache keeps of every token.
  Tensor attend_to_latents(Exec& exec, const Tensor& latent, const MixerContext& context, Saved& f,
                           SavedStack& saved) const {
    const Sequence& sequence = context.sequence;
    f.k = exec.empty({sequence.tokens(), o_.rope_width + o_.kv_rank}, compute_);
    if (o_.rope_width > 0) {
      kernels::copy(exec, shared_key(f.down), f.k.view().columns(0, o_.rope_width));
    }
    kernels::copy(exec, latent, latent_part(f.k));
    rotation_.turn(exec, sequence, h_.heads, f.q, Rotation::Direction::kForward);
    latent_rotation_.turn(exec, sequence, 1, f.k, Rotation::Direction::kForward);
    return latent_rows_.forward(exec, f.q, f.k, sequence, context.part("latents"), saved);
  }
  Tensor latents_backward(Exec& exec, const MixerContext& context, const Saved& f,
                          const Tensor& d_out, const Tensor& dq, const Tensor& d_down,
                          SavedStack& saved) const {
    const Sequence& sequence = context.sequence;
    const Tensor dk = exec.empty(f.k.shape(), compute_),
                 d_latent = exec.empty({dk.shape()[0], o_.kv_rank});
    latent_rows_.backward(exec, f.q, f.k, sequence, d_out, context.part("latents"), dq, dk, saved);
    rotation_.turn(exec, sequence, h_.heads, dq, Rotation::Direction::kBackward);
    latent_rotation_.turn(exec, sequence, 1, dk, Rotation::Direction::kBackward);
    if (o_.rope_width > 0) {
      kernels::copy(exec, dk.view().columns(0, o_.rope_width), shared_key(d_down));
    }
    kernels::copy(exec, latent_part(dk), d_latent);
    return d_latent;
  }

  int64_t width() const { return o_.rope_width + h_.dk; }  // of a query
  HeadOptions whole_heads() const {
    HeadOptions heads = h_;
    heads.kv_heads = heads.heads;
    heads.dk = width();
    return heads;
  }
  kernels::HeadNorm norm() const { return {.epsilon = static_cast<float>(o_.norm_eps)}; }

  View shared_key(const Tensor& down) const {
    return down.view().columns(o_.kv_rank, o_.rope_width);
  }
  View key(const Tensor& up, int64_t h) const { return up.view().columns(h * h_.dk, h_.dk); }
  View latent_part(const Tensor& rows) const {
    return rows.view().columns(o_.rope_width, o_.kv_rank);
  }
  View values(const Tensor& up) const {
    return up.view().columns(h_.heads * h_.dk, h_.heads * h_.dv);
  }
  View shared_part(const Tensor& k, int64_t h) const {
    return k.view().columns(h * width(), o_.rope_width);
  }
  View own_part(const Tensor& k, int64_t h) const {
    return k.view().columns(h * width() + o_.rope_width, h_.dk);
  }
  AttentionInputs inputs(const Saved& f) const { return {f.q, f.k, values(f.up)}; }

  // The gradient of a key goes to its own projection and to the part that all heads share.
  void collect_keys(Exec& exec, const Tensor& dk, const Tensor& d_up, const Tensor& d_down) const {
    const Tensor sum = exec.zeros({dk.shape()[0], o_.rope_width});
    for (int64_t h = 0; h < h_.heads; ++h) {
      kernels::copy(exec, own_part(dk, h), key(d_up, h));
      if (o_.rope_width > 0) kernels::add(exec, sum, shared_part(dk, h), sum);
    }
    if (o_.rope_width > 0) kernels::copy(exec, sum, shared_key(d_down));
  }

  Tensor query_latent(Exec& exec, const Tensor& x, Saved& f, SavedStack& saved) const {
    f.q_down = q_down_->forward(exec, x, compute_, saved);
    f.q_inv_rms = exec.empty({x.shape()[0], 1});
    const Tensor latent = exec.empty(f.q_down.shape(), compute_);
    kernels::head_norm_forward(exec, norm(), f.q_down, {}, q_norm_->value, latent, f.q_inv_rms);
    return latent;
  }
  Tensor query_latent_backward(Exec& exec, const Tensor& d_latent, const Saved& f,
                               SavedStack& saved) const {
    const Tensor d_down = exec.empty(f.q_down.shape(), compute_);
    kernels::head_norm_backward(exec, norm(), d_latent, f.q_down, {}, q_norm_->value, f.q_inv_rms,
                                d_down, {}, q_norm_->grad);
    return q_down_->backward(exec, d_down, DType::kF32, saved);
  }

  MlaOptions o_;
  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear down_;
  Parameter& norm_;  // [kv_rank]
  Linear up_;
  Rotation rotation_;
  AttentionRows rows_;
  Rotation latent_rotation_;
  LatentRows latent_rows_;
  Linear out_;
  std::optional<Linear> q_down_, query_;
  Parameter* q_norm_ = nullptr;  // [q_rank]
};

}  // namespace

std::unique_ptr<Mixer> make_mla(const MixerBuild& build) {
  auto o = read_options<MlaOptions>(build.options, "mla");
  const HeadOptions heads = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  if (o.kv_rank == 0) o.kv_rank = std::max<int64_t>(1, build.hidden / 4);
  o.rotation = resolve(build, o.rotation);
  if (o.rope) check_rotary(build, o.rope_width, heads.dk + o.rope_width);
  return std::make_unique<Mla>(build, o, heads);
}

std::vector<FieldInfo> options_of_mla() { return describe<MlaOptions>(); }

}  // namespace weft
