#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/parameter.h"

namespace weft {

// Rows of a tensor, seen as [first extent, the rest]: `count` runs of `run` rows, the first one at
// `begin`, each `stride` after the one before. Heads that a fused matrix interleaves are such runs.
struct RowRuns {
  int64_t begin = 0, run = 0, stride = 0, count = 1;
  int64_t rows() const { return run * count; }
};

// One box of a Weft tensor is, element by element in order, these rows of a tensor of a Hugging
// Face folder. Values are not changed: export reproduces the imported bits.
struct TensorLink {
  std::string weft;
  Slice box;
  std::string hf;
  RowRuns rows;
};

// Maps tensors of a Hugging Face folder to weights of a model.
class TensorMap {
 public:
  explicit TensorMap(const ParameterStore& model);

  // Maps a whole tensor to one of the same size, possibly of another shape.
  void whole(const std::string& weft, const std::string& hf);
  void whole(const std::string& weft, const std::string& hf, const Shape& hf_shape);
  // Maps a whole tensor into expert `index` of a stack [experts, rows, width]; it fills `rows` of
  // its rows from `begin` on.
  void expert(const std::string& weft, int64_t index, int64_t begin, int64_t rows,
              const std::string& hf);
  // Maps rows of a tensor to rows of another one.
  struct Rows {
    int64_t begin, count;
  };
  void rows(const std::string& weft, const Rows& mine, const std::string& hf, const Shape& hf_shape,
            const RowRuns& theirs);
  // An alternative name of a tensor in some folders.
  void also(const std::string& hf, const std::string& other) { other_names_[hf] = other; }
  // A redundant tensor that folders may contain: a tied head, a table of frequencies. A name that
  // ends in a dot is a prefix of tensor names.
  void ignored(const std::string& hf) { ignored_.push_back(hf); }

  const Shape& shape_of(const std::string& weft) const;  // shape in the model
  bool has(const std::string& weft) const { return model_.contains(weft); }
  const std::vector<std::string>& weights() const { return weights_; }  // names, in order

  // Every element of every weight and of every tensor must be linked once.
  void check() const;

  const std::vector<TensorLink>& links() const { return links_; }
  const std::map<std::string, Shape>& tensors() const { return tensors_; }
  const std::vector<std::string>& order() const { return order_; }  // names of the folder's tensors
  bool ignores(const std::string& hf) const;
  const std::map<std::string, std::string>& other_names() const { return other_names_; }

 private:
  void add(TensorLink link, const Shape& hf_shape);

  std::map<std::string, Shape> model_;  // weights by name
  std::vector<std::string> weights_;
  std::vector<TensorLink> links_;
  std::map<std::string, Shape> tensors_;  // tensors of the folder
  std::vector<std::string> order_;
  std::vector<std::string> ignored_;
  std::map<std::string, std::string> other_names_;
};

}  // namespace weft
