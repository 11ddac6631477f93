#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft {

class EventWriter;
class RecordFile;

// Measurements of one optimizer step, over all ranks.
struct StepMetrics {
  int64_t step = 0;  // from 1
  double loss = 0;   // language-model loss, mean over target tokens
  double aux_loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  double mfu = 0;      // 0 to 1
  int64_t tokens = 0;  // seen since the first step
  int64_t peak_bytes = 0;
  std::map<std::string, int64_t> comm_bytes = {};  // by mesh axis
  std::map<std::string, int64_t> comm_calls = {};
  // One number per MoE layer, in layer order.
  std::vector<double> expert_load = {};     // pairs of the most loaded expert over the mean
  std::vector<double> expert_entropy = {};  // entropy of pair shares, nats; log(experts) if even
  std::vector<double> router_entropy = {};  // mean entropy of a token's probabilities, nats
  std::vector<double> router_margin = {};   // smallest gap from a token's last choice to the next
  std::vector<int64_t> dead_experts = {};   // without any pair
  std::vector<int64_t> dropped_by_layer = {};  // pairs beyond an expert's capacity
  int64_t dropped = 0;                         // their sum
  // By MoE layer and expert: pairs before any is dropped. Empty unless requested.
  std::vector<std::vector<int64_t>> expert_pairs = {};
  // By pruning layer and head: share of attention blocks that were skipped.
  std::vector<std::vector<double>> acp_pruned = {};
  bool skipped = false;  // gradients were not finite
  // Consumption of one dataset by the run so far.
  struct Source {
    std::string name;
    int64_t samples = 0;
    double epochs = 0;
  };
  std::vector<Source> sources = {};
  // Set if a validation followed this step: the mean over validation sets by their weights, and
  // the loss of each named set.
  std::optional<double> valid_loss = {};
  std::vector<std::pair<std::string, double>> valid_losses = {};
  std::optional<double> save_ms = {};  // time that saving blocked the run before this step
};

// One JSON object on one line, without the line's end. Numbers read back as the same bits, losses
// have at least nine significant digits; non-finite numbers are null.
std::string to_json(const StepMetrics& metrics);

// dir/metrics.jsonl and dir/tensorboard, one line and one event per step, on disk when write
// returns. A disk that is full or fails does not end a run: whole steps are left out until writing
// works again; `warn` is called when that begins and ends.
class MetricsWriter {
 public:
  using Warn = std::function<void(const std::string&)>;

  // `first_step` is the first step to be written: lines of earlier steps stay, later ones (from a
  // run that went past its last checkpoint) are removed.
  explicit MetricsWriter(const std::string& dir, int64_t first_step = 1, Warn warn = {});
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const StepMetrics& metrics);

 private:
  void note(int64_t step, const RecordFile* failed);  // the file that failed; null: none

  Warn warn_;
  std::unique_ptr<RecordFile> lines_;
  std::unique_ptr<EventWriter> events_;
  int64_t missing_from_ = 0;  // first step that was left out; 0: none
};

}  // namespace weft
