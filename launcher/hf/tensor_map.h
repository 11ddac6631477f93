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
// Face folder. No number is changed on the way: what is imported is exported with the same bits.
struct TensorLink {
  std::string weft;
  Slice box;
  std::string hf;
  RowRuns rows;
};

// Which tensors of a Hugging Face folder the weights of a model are.
class TensorMap {
 public:
  explicit TensorMap(const ParameterStore& model);

  // A whole tensor of the same elements: of the same shape, or of another one of the same size.
  void whole(const std::string& weft, const std::string& hf);
  void whole(const std::string& weft, const std::string& hf, const Shape& hf_shape);
  // A whole tensor into part `index` of a stack: expert `index` of [experts, rows, width], of whose
  // rows it fills `rows` from `begin` on.
  void expert(const std::string& weft, int64_t index, int64_t begin, int64_t rows,
              const std::string& hf);
  // Rows of a tensor into rows of another one.
  struct Rows {
    int64_t begin, count;
  };
  void rows(const std::string& weft, const Rows& mine, const std::string& hf, const Shape& hf_shape,
            const RowRuns& theirs);
  // Another name under which some folders hold a tensor.
  void also(const std::string& hf, const std::string& other) { other_names_[hf] = other; }
  // A tensor that folders may hold and that says nothing: a tied head, a table of frequencies.
  // One that ends in a dot stands for all tensors whose names start with it.
  void ignored(const std::string& hf) { ignored_.push_back(hf); }

  const Shape& shape_of(const std::string& weft) const;  // in the model
  bool has(const std::string& weft) const { return model_.contains(weft); }
  const std::vector<std::string>& weights() const { return weights_; }  // of the model, in order

  // Every element of every weight and of every tensor must be linked once.
  void check() const;

  const std::vector<TensorLink>& links() const { return links_; }
  const std::map<std::string, Shape>& tensors() const { return tensors_; }
  const std::vector<std::string>& order() const { return order_; }  // of the tensors
  bool ignores(const std::string& hf) const;
  const std::map<std::string, std::string>& other_names() const { return other_names_; }

 private:
  void add(TensorLink link, const Shape& hf_shape);

  std::map<std::string, Shape> model_;  // weights by name
  std::vector<std::string> weights_;
  std::vector<TensorLink> links_;
  std::map<std::string, Shape> tensors_;  // of the folder
  std::vector<std::string> order_;
  std::vector<std::string> ignored_;
  std::map<std::string, std::string> other_names_;
};

}  // namespace weft
