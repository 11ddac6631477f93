#include "kernels/scan/cpu/isa/norm_descent_scan.h"

#include "kernels/programs/norm_descent_scan.h"
#include "kernels/programs/norm_descent_scan_backward.h"
#include "kernels/tile/cpu.h"

// The CPU walks the mini-batches of a head one after the other, in pieces of at most kPiece tokens.
// Backward needs the states before every piece: those of every kSegment-th piece are kept, by
// forward or by a walk of its own, and those in between made again segment by segment.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

constexpr int64_t kPiece = 64, kSegment = 16;

class NormEngine : public Engine {
 public:
  WEFT_INLINE static VF inv_sqrt(VF x) { return 1.0f / sqrt(x); }
};

struct Sizes {
  int64_t chunk_, width_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t width() const { return width_; }
};
using ForwardSpace = programs::NormDescentSpace<NormEngine, Sizes>;
using BackwardSpace = programs::NormDescentBackwardSpace<NormEngine, Sizes>;

template <class Space>
int64_t scratch_of(int64_t width) {
  Space w;
  return place(w, Sizes{kPiece, width}, nullptr);
}

// Tokens of one mini-batch.
struct Piece {
  int64_t begin, count;
  bool fresh, ends;  // they begin the mini-batch, and end it
};
Piece piece_at(const NormDescentTask& task, int64_t begin) {
  const int64_t before = (task.before + begin) % task.mini_batch;
  int64_t count = task.mini_batch - before;
  if (count > kPiece) count = kPiece;
  if (count > task.q.rows - begin) count = task.q.rows - begin;
  return {begin, count, before == 0, before + count == task.mini_batch};
}
// The first token of piece `number`, were there that many tokens.
int64_t begin_of(const NormDescentTask& task, int64_t number) {
  const int64_t size = task.mini_batch, before = task.before % size;
  const int64_t first = before == 0 ? 0 : size - before;  // tokens of a mini-batch begun earlier
  const int64_t pieces = (first + kPiece - 1) / kPiece, each = (size + kPiece - 1) / kPiece;
  if (number < pieces) return number * kPiece;
  return first + (number - pieces) / each * size + (number - pieces) % each * kPiece;
}
// The tokens, if any, end a mini-batch: what leaves as the anchor is the state.
bool is_border(const NormDescentTask& task) {
  return task.q.rows > 0 && (task.before + task.q.rows) % task.mini_batch == 0;
}

programs::NormDescentPiece<NormEngine> piece_of(const NormDescentTask& task, const Piece& p) {
  return {task.q.row_range(p.begin, p.count),
          task.k.row_range(p.begin, p.count),
          task.v.row_range(p.begin, p.count),
          task.eta.from(p.begin),
          task.scale,
          task.epsilon,
          static_cast<float>(task.q.columns),
          p.fresh};
}

// States of both kinds as they lie in scratch, laid out as operands.
struct Slot {
  float* at;
  int64_t width;
  static int64_t one(int64_t width) {
    return round_up(width, 4) * padded_width(width) + padded_width(width);
  }
  static int64_t size(int64_t width) { return 2 * one(width); }
  tile::Out m(int64_t which) const {
    return {at + which * one(width), padded_width(width), width, width, DType::kF32};
  }
  float* n(int64_t which) const {
    return at + which * one(width) + round_up(width, 4) * padded_width(width);
  }
};

tile::In readable(const tile::Out& view) {
  return {view.data, view.stride, view.rows, view.columns, view.dtype};
}

template <class Op, class Vec>
void save_pair(NormEngine& e, Op& m, const Vec& n, const tile::Out& to_m,
               const tile::OutVector& to_n) {
  if (!to_m.empty()) e.run(tile::kFull, tile::take(m), tile::store(to_m));
  e.save(n, to_n);
}

// The states before a piece; one that begins a mini-batch has no other anchor than they are.
template <class Space>
void save(NormEngine& e, Space& w, const Piece& p, const Slot& slot) {
  save_pair(e, w.m, w.n, slot.m(0), {slot.n(0), 1});
  if (!p.fresh) save_pair(e, w.anchor, w.anchor_n, slot.m(1), {slot.n(1), 1});
}
template <class Space>
void load_slot(NormEngine& e, Space& w, const Piece& p, const Slot& slot) {
  e.load(w.m, readable(slot.m(0)));
  e.load(w.n, tile::InVector{slot.n(0), 1});
  if (p.fresh) return;
  e.load(w.anchor, readable(slot.m(1)));
  e.load(w.anchor_n, tile::InVector{slot.n(1), 1});
}

// The weights that enter, and w, c.
template <class Space>
void enter(NormEngine& e, const NormDescentTask& task, Space& w) {
  e.load(w.w, task.w), e.load(w.c, task.c);
  e.load(w.m, task.state.m), e.load(w.n, task.state.n);
  const bool given = !task.anchor.m.empty();
  e.load(w.anchor, given ? task.anchor.m : task.state.m);
  e.load(w.anchor_n, given ? task.anchor.n : task.state.n);
}

// Through at most `most` pieces from token `begin` on: each(number, piece) before step(piece).
template <class Each, class Step>
void walk(NormEngine& e, const NormDescentTask& task, int64_t begin, int64_t most, float* scratch,
          ForwardSpace& w, Each each, Step step) {
  for (int64_t number = 0; begin < task.q.rows && number < most; ++number) {
    const Piece p = piece_at(task, begin);
    place(w, Sizes{p.count, task.q.columns}, scratch);
    if (p.fresh && !p.ends) programs::norm_descent_anchor(e, w);
    each(number, p);
    step(p);
    begin += p.count;
  }
}

// No more pieces than this.
int64_t pieces_of(int64_t tokens, int64_t mini_batch) {
  return tokens / mini_batch + tokens / kPiece + 2;
}
// A slot per segment.
int64_t kept_floats(int64_t tokens, int64_t mini_batch, int64_t width) {
  return (pieces_of(tokens, mini_batch) / kSegment + 1) * Slot::size(width);
}
Slot segment(float* kept, int64_t number, int64_t width) {
  return {kept + number * Slot::size(width), width};
}

void forward(const NormDescentTask& task, const NormDescentOutputs& outputs, float* scratch) {
  const int64_t width = task.q.columns;
  NormEngine e;
  ForwardSpace w;
  place(w, Sizes{kPiece, width}, scratch);
  enter(e, task, w);
  walk(
      e, task, 0, task.q.rows, scratch, w,
      [&](int64_t number, const Piece& p) {
        if (outputs.kept != nullptr && number % kSegment == 0) {
          save(e, w, p, segment(outputs.kept, number / kSegment, width));
        }
      },
      [&](const Piece& p) {
        programs::norm_descent_forward(e, piece_of(task, p),
                                       outputs.out.row_range(p.begin, p.count), w);
      });
  save_pair(e, w.m, w.n, outputs.state.m, outputs.state.n);
  if (is_border(task)) {
    save_pair(e, w.m, w.n, outputs.anchor.m, outputs.anchor.n);
  } else {
    save_pair(e, w.anchor, w.anchor_n, outputs.anchor.m, outputs.anchor.n);
  }
}

int64_t backward_scratch(int64_t tokens, int64_t mini_batch, int64_t width) {
  return kept_floats(tokens, mini_batch, width) + kSegment * Slot::size(width) +
         scratch_of<ForwardSpace>(width) + scratch_of<BackwardSpace>(width);
}

void start_backward(NormEngine& e, const NormDescentTask& task, const NormDescentTaskGradients& g,
                    BackwardSpace& w) {
  e.load(w.w, task.w), e.load(w.c, task.c);
  programs::set_zero(e, w.dw), programs::set_zero(e, w.dc);
  e.load(w.dm, g.d_state.m), e.load(w.dn, g.d_state.n);
  e.load(w.d_anchor, g.d_anchor.m), e.load(w.d_anchor_n, g.d_anchor.n);
}
// The anchor is a copy of the weights: its gradient is theirs.
void join_anchor(NormEngine& e, BackwardSpace& w) {
  e.run(tile::kFull, tile::take(w.dm),
        tile::map([&](auto i, auto j, auto x) { return x + w.d_anchor(i, j); }), tile::put(w.dm));
  e.fill(w.dn, [&](auto j) { return w.dn[j] + w.d_anchor_n[j]; });
}
void clear_anchor(NormEngine& e, BackwardSpace& w) {
  e.load(w.d_anchor, tile::In{}), e.load(w.d_anchor_n, tile::InVector{});
}

// Where scratch of backward lies.
struct Areas {
  float *kept, *slots, *ahead, *back;
};

// The pieces of one segment, which begins at token `begin`, from the last to the first.
void segment_backward(NormEngine& e, const NormDescentTask& task, const NormDescentTaskGradients& g,
                      int64_t begin, const Slot& from, const Areas& at, ForwardSpace& ahead,
                      BackwardSpace& w) {
  const int64_t width = task.q.columns;
  Piece pieces[kSegment];
  int64_t count = 0;
  load_slot(e, ahead, piece_at(task, begin), from);
  walk(
      e, task, begin, kSegment, at.ahead, ahead,
      [&](int64_t number, const Piece& p) {
        save(e, ahead, p, segment(at.slots, number, width));
        pieces[number] = p, count = number + 1;
      },
      [&](const Piece& p) {
        programs::norm_descent_updates(e, piece_of(task, p), ahead);
        programs::norm_descent_state(e, ahead);
      });
  while (count-- > 0) {
    const Piece& p = pieces[count];
    place(w, Sizes{p.count, width}, at.back);
    load_slot(e, w, p, segment(at.slots, count, width));
    programs::norm_descent_backward(
        e, piece_of(task, p),
        {g.d_out.row_range(p.begin, p.count), g.dq.row_range(p.begin, p.count),
         g.dk.row_range(p.begin, p.count), g.dv.row_range(p.begin, p.count), g.d_eta.from(p.begin)},
        w);
    if (p.fresh) clear_anchor(e, w);
  }
}

void finish_backward(NormEngine& e, const NormDescentTask& task, const NormDescentTaskGradients& g,
                     BackwardSpace& w) {
  if (task.anchor.m.empty()) join_anchor(e, w);
  save_pair(e, w.dm, w.dn, g.state.m, g.state.n);
  save_pair(e, w.d_anchor, w.d_anchor_n, g.anchor.m, g.anchor.n);
  e.save(w.dw, g.d_w), e.save(w.dc, g.d_c);
}

void backward(const NormDescentTask& task, const NormDescentTaskGradients& g, float* scratch) {
  const int64_t tokens = task.q.rows, width = task.q.columns;
  Areas at{scratch, scratch + kept_floats(tokens, task.mini_batch, width), nullptr, nullptr};
  at.ahead = at.slots + kSegment * Slot::size(width);
  at.back = at.ahead + scratch_of<ForwardSpace>(width);
  NormEngine e;
  ForwardSpace ahead;
  BackwardSpace w;
  place(ahead, Sizes{kPiece, width}, at.ahead);
  place(w, Sizes{kPiece, width}, at.back);
  enter(e, task, ahead);
  const float* kept = g.kept;
  if (kept == nullptr) {
    kept = at.kept;
    walk(
        e, task, 0, tokens, at.ahead, ahead,
        [&](int64_t number, const Piece& p) {
          if (number % kSegment == 0) save(e, ahead, p, segment(at.kept, number / kSegment, width));
        },
        [&](const Piece& p) {
          programs::norm_descent_updates(e, piece_of(task, p), ahead);
          programs::norm_descent_state(e, ahead);
        });
  }
  start_backward(e, task, g, w);
  if (is_border(task)) join_anchor(e, w), clear_anchor(e, w);
  int64_t last = 0;
  while (begin_of(task, (last + 1) * kSegment) < tokens) ++last;
  for (int64_t s = last; s >= 0 && tokens > 0; --s) {
    segment_backward(e, task, g, begin_of(task, s * kSegment),
                     segment(const_cast<float*>(kept), s, width), at, ahead, w);
  }
  finish_backward(e, task, g, w);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const NormDescentTable& table(ThisIsa, const NormDescentTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr NormDescentTable table{isa::kept_floats, isa::scratch_of<isa::ForwardSpace>,
                                          isa::forward, isa::backward_scratch, isa::backward};
  return table;
}

}  // namespace weft::kernels
