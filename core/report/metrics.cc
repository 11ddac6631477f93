#include "core/report/metrics.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/files/new_file.h"
#include "core/report/tensorboard.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

// The shortest text that reads back as the same bits, padded to nine significant digits.
std::string loss_number(double x) {
  if (!std::isfinite(x)) return "null";
  std::string text = number(x);
  int digits = 0;  // from the first that is not zero
  for (const char c : text.substr(0, text.find('e'))) {
    if (c >= '1' && c <= '9')
      ++digits;
    else if (c == '0' && digits > 0)
      ++digits;
  }
  if (digits >= 9) return text;
  text = fmt::format("{:#.9g}", x);
  if (text.back() == '.') text += '0';
  return text;
}

// True for a whole line of a step before `first_step`.
bool keeps(const std::string& line, int64_t first_step) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step")) return false;
  return json["step"].is_number_integer() && json["step"].get<int64_t>() < first_step;
}

void drop_later_lines(const std::string& path, int64_t first_step) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return;  // nothing there yet
  NewFile kept(path);
  for (std::string line; std::getline(in, line);) {
    line += '\n';
    if (keeps(line, first_step)) kept.write(line.data(), std::ssize(line));
  }
  kept.finish();
}

std::vector<std::pair<std::string, double>> scalars_of(const StepMetrics& m) {
  std::vector<std::pair<std::string, double>> tags = {
      {"loss", m.loss},
      {"aux_loss", m.aux_loss},
      {"grad_norm", m.grad_norm},
      {"lr", m.lr},
      {"step_ms", m.step_ms},
      {"tokens_per_s", m.tokens_per_s},
      {"mfu", m.mfu},
      {"tokens", static_cast<double>(m.tokens)},
      {"peak_bytes", static_cast<double>(m.peak_bytes)},
      {"dropped", static_cast<double>(m.dropped)},
      {"skipped", m.skipped ? 1.0 : 0.0}};
  if (m.valid_loss) tags.emplace_back("valid_loss", *m.valid_loss);
  for (const auto& [name, loss] : m.valid_losses) tags.emplace_back("valid_loss/" + name, loss);
  for (const auto& [axis, bytes] : m.comm_bytes) {
    tags.emplace_back("comm_bytes/" + axis, static_cast<double>(bytes));
  }
  const auto layers = [&](const char* name, const auto& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      tags.emplace_back(fmt::format("{}/{:03}", name, i), static_cast<double>(values[i]));
    }
  };
  layers("expert_load", m.expert_load);
  layers("expert_entropy", m.expert_entropy);
  layers("router_entropy", m.router_entropy);
  layers("router_margin", m.router_margin);
  layers("dead_experts", m.dead_experts);
  layers("dropped_by_layer", m.dropped_by_layer);
  for (size_t i = 0; i < m.acp_pruned.size(); ++i) {
    layers(fmt::format("acp_pruned/{:03}", i).c_str(), m.acp_pruned[i]);
  }
  return tags;
}

std::string quoted_name(const std::string& name) {
  return nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// {1.5, 2} becomes "1.5,2".
template <class T>
std::string listed(const std::vector<T>& values) {
  std::string out;
  for (const T x : values) {
    out += fmt::format("{}{}", out.empty() ? "" : ",", number(static_cast<double>(x)));
  }
  return out;
}

// {{1.5, 2}, {3}} becomes "[1.5,2],[3]".
template <class T>
std::string listed(const std::vector<std::vector<T>>& lists) {
  std::string out;
  for (const auto& list : lists) out += fmt::format("{}[{}]", out.empty() ? "" : ",", listed(list));
  return out;
}

// {{"data", 7}} becomes "\"data\":7".
std::string listed(const std::map<std::string, int64_t>& by_name) {
  std::string out;
  for (const auto& [name, value] : by_name) {
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", nlohmann::json(name).dump(), value);
  }
  return out;
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  std::string out =
      fmt::format(R"({{"step":{},"loss":{},"aux_loss":{},"grad_norm":{},"lr":{})", m.step,
                  loss_number(m.loss), loss_number(m.aux_loss), number(m.grad_norm), number(m.lr));
  out +=
      fmt::format(R"(,"step_ms":{},"tokens_per_s":{},"mfu":{},"tokens":{},"peak_bytes":{})",
                  number(m.step_ms), number(m.tokens_per_s), number(m.mfu), m.tokens, m.peak_bytes);
  out += fmt::format(R"(,"comm_bytes":{{{}}},"comm_calls":{{{}}})", listed(m.comm_bytes),
                     listed(m.comm_calls));
  out += fmt::format(R"(,"expert_load":[{}],"expert_entropy":[{}])", listed(m.expert_load),
                     listed(m.expert_entropy));
  out += fmt::format(R"(,"router_entropy":[{}],"router_margin":[{}])", listed(m.router_entropy),
                     listed(m.router_margin));
  out += fmt::format(R"(,"dead_experts":[{}],"dropped_by_layer":[{}])", listed(m.dead_experts),
                     listed(m.dropped_by_layer));
  out += fmt::format(R"(,"dropped":{},"skipped":{})", m.dropped, m.skipped);
  if (!m.expert_pairs.empty())
    out += fmt::format(R"(,"expert_pairs":[{}])", listed(m.expert_pairs));
  if (!m.acp_pruned.empty()) out += fmt::format(R"(,"acp_pruned":[{}])", listed(m.acp_pruned));
  if (!m.sources.empty()) {
    std::string all;
    for (const StepMetrics::Source& s : m.sources) {
      all += fmt::format(R"({}{}:{{"samples":{},"epochs":{}}})", all.empty() ? "" : ",",
                         quoted_name(s.name), s.samples, number(s.epochs));
    }
    out += fmt::format(R"(,"sources":{{{}}})", all);
  }
  if (m.valid_loss) out += fmt::format(R"(,"valid_loss":{})", loss_number(*m.valid_loss));
  if (!m.valid_losses.empty()) {
    std::string all;
    for (const auto& [name, loss] : m.valid_losses) {
      all += fmt::format("{}{}:{}", all.empty() ? "" : ",", quoted_name(name), loss_number(loss));
    }
    out += fmt::format(R"(,"valid_losses":{{{}}})", all);
  }
  if (m.save_ms) out += fmt::format(R"(,"save_ms":{})", number(*m.save_ms));
  out += "}";
  return out;
}

MetricsWriter::MetricsWriter(const std::string& dir, int64_t first_step, Warn warn)
    : warn_(std::move(warn)) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw Error("{}: cannot make this folder: {}", dir, error.message());
  const std::string path = (fs::path(dir) / "metrics.jsonl").string();
  drop_later_lines(path, first_step);
  lines_ = std::make_unique<RecordFile>(path, RecordFile::Content::kKeep);
  events_ = std::make_unique<EventWriter>((fs::path(dir) / "tensorboard").string(), first_step);
}

MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const StepMetrics& metrics) {
  const bool line = lines_->append(to_json(metrics) + "\n");
  bool events = events_->scalars(metrics.step, scalars_of(metrics));
  for (size_t i = 0; i < metrics.expert_pairs.size(); ++i) {
    const std::string tag = fmt::format("expert_pairs/{:03}", i);
    events = events_->histogram(metrics.step, tag, metrics.expert_pairs[i]) && events;
  }
  note(metrics.step, !line ? lines_.get() : !events ? &events_->file() : nullptr);
}

void MetricsWriter::note(int64_t step, const RecordFile* failed) {
  if ((failed != nullptr) == (missing_from_ > 0)) return;  // as at the step before
  const std::string text =
      failed != nullptr
          ? fmt::format(
                "metrics  {}: cannot write: {}; training goes on, and steps are left out "
                "of the metrics until that works again",
                failed->path(), failed->why_not())
          : fmt::format(
                "metrics  {} is written again; steps {} to {} are missing in it or in tensorboard/",
                lines_->path(), missing_from_, step - 1);
  missing_from_ = failed != nullptr ? step : 0;
  if (warn_) warn_(text);
}

}  // namespace weft
