#include "core/report/metrics.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/report/run_record.h"
#include "core/report/tensorboard.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct Folder {
  explicit Folder(const std::string& name) : path(fs::path(testing::TempDir()) / name) {
    fs::remove_all(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

std::string contents(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::vector<nlohmann::json> lines_of(const fs::path& path) {
  std::vector<nlohmann::json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

TEST(Metrics, WritesEveryKeyAndKeepsTheBits) {
  StepMetrics m;
  m.step = 12;
  m.loss = 3.8214001655578613;
  m.aux_loss = 0.0102;
  m.comm_bytes = {{"data", 1024}, {"sequence", 7}};
  m.expert_load = {1.25, 1.0 / 3};
  m.expert_entropy = {2.0794415416798357};
  m.dead_experts = {0, 3};
  m.dropped_by_layer = {7, 2};
  m.dropped = 9;
  m.tokens = int64_t{1} << 53;
  m.sources = {{"a\"b", 30, 1.5}, {"c", 10, 0.25}};
  EXPECT_EQ(to_json(m).find("save_ms"), std::string::npos);  // nothing was saved
  m.save_ms = 12.5;
  const auto json = nlohmann::json::parse(to_json(m));
  for (const char* key : {"step",
                          "loss",
                          "aux_loss",
                          "grad_norm",
                          "lr",
                          "step_ms",
                          "tokens_per_s",
                          "mfu",
                          "tokens",
                          "peak_bytes",
                          "comm_bytes",
                          "comm_calls",
                          "expert_load",
                          "expert_entropy",
                          "router_entropy",
                          "router_margin",
                          "dead_experts",
                          "dropped_by_layer",
                          "dropped",
                          "skipped"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["loss"].get<double>(), m.loss);
  EXPECT_EQ(json["comm_bytes"]["sequence"], 7);
  EXPECT_EQ(json["expert_load"][1].get<double>(), 1.0 / 3);
  EXPECT_EQ(json["expert_entropy"][0].get<double>(), 2.0794415416798357);
  EXPECT_TRUE(json["router_entropy"].empty());
  EXPECT_EQ(json["dead_experts"], (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(json["dropped_by_layer"], (std::vector<int64_t>{7, 2}));
  EXPECT_EQ(json["dropped"], 9);
  EXPECT_FALSE(json.contains("expert_pairs"));
  m.expert_pairs = {{3, 0, 5}, {8, 0, 0}};
  EXPECT_EQ(nlohmann::json::parse(to_json(m))["expert_pairs"], nlohmann::json(m.expert_pairs));
  EXPECT_EQ(json["save_ms"], 12.5);
  EXPECT_EQ(json["tokens"], m.tokens);
  EXPECT_EQ(json["sources"]["a\"b"]["epochs"], 1.5);
  EXPECT_EQ(json["sources"]["c"]["samples"], 10);
}

TEST(Metrics, GivesLossesAtLeastNineDigits) {
  StepMetrics m;
  for (const double loss : {3.5, 0.0, 1e-7, 123456789.0, 1234567890.0, 0.1, 1e22, -2.0}) {
    m.loss = loss;
    const std::string text = to_json(m);
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json["loss"].get<double>(), loss) << text;
  }
  m.loss = 3.5;
  EXPECT_NE(to_json(m).find("\"loss\":3.50000000,"), std::string::npos) << to_json(m);
}

TEST(Metrics, WritesNullForWhatIsNotFinite) {
  StepMetrics m;
  m.loss = std::numeric_limits<double>::quiet_NaN();
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.skipped = true;
  const auto json = nlohmann::json::parse(to_json(m));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_TRUE(json["skipped"].get<bool>());
}

TEST(MetricsWriter, HasEachLineOnDiskAtOnce) {
  Folder folder("metrics_lines");
  MetricsWriter writer(folder.path.string());
  for (int64_t step = 1; step <= 3; ++step) {
    writer.write({.step = step, .loss = 1.0 / static_cast<double>(step)});
    EXPECT_EQ(lines_of(folder.path / "metrics.jsonl").size(), static_cast<size_t>(step));
  }
}

TEST(MetricsWriter, DropsStepsThatAResumedRunWritesAgain) {
  Folder folder("metrics_resume");
  {
    MetricsWriter writer(folder.path.string());
    for (int64_t step = 1; step <= 5; ++step) writer.write({.step = step, .loss = 1});
  }
  std::ofstream(folder.path / "metrics.jsonl", std::ios::app) << R"({"step":6,"lo)";  // torn
  {
    MetricsWriter writer(folder.path.string(), 4);
    for (int64_t step = 4; step <= 5; ++step) writer.write({.step = step, .loss = 2});
  }
  const auto lines = lines_of(folder.path / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_EQ(lines[i]["loss"], i < 3 ? 1 : 2);
  }
}

TEST(MetricsWriter, SaysWhenTheFolderCannotBeMade) {
  EXPECT_THROW(MetricsWriter("/proc/no/such/folder"), Error);
}

TEST(Crc32c, MatchesPublishedVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);              // the check value of CRC-32C
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(""), 0u);
}

// A reader of event files that shares no code with the writer but the checksum.
struct Wire {
  std::string bytes;
  size_t at = 0;
  template <class T>
  T raw() {
    T value;
    EXPECT_LE(at + sizeof(T), bytes.size());
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = raw<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string take(size_t count) {
    EXPECT_LE(at + count, bytes.size());
    at += count;
    return bytes.substr(at - count, count);
  }
  bool done() const { return at >= bytes.size(); }
};

// The events in the one file of a run's folder; every record must be whole.
std::vector<std::string> events_in(const fs::path& folder) {
  fs::path file;
  for (const auto& entry : fs::directory_iterator(folder / "tensorboard")) file = entry.path();
  EXPECT_TRUE(file.filename().string().starts_with("events.out.tfevents."));

  Wire records{contents(file)};
  std::vector<std::string> events;
  while (!records.done()) {
    const std::string length_bytes = records.bytes.substr(records.at, 8);
    const auto length = records.raw<uint64_t>();
    EXPECT_EQ(records.raw<uint32_t>(), masked_crc32c(length_bytes));
    events.push_back(records.take(length));
    EXPECT_EQ(records.raw<uint32_t>(), masked_crc32c(events.back()));
  }
  return events;
}

// The events of one step, written into a new folder.
std::vector<std::string> events_of(const StepMetrics& metrics, const char* folder_name) {
  Folder folder(folder_name);
  MetricsWriter(folder.path.string(), metrics.step).write(metrics);
  return events_in(folder.path);
}

// The values of an event's summary by tag: the bytes behind the tag.
std::map<std::string, Wire> values_of(const std::string& bytes) {
  Wire event{bytes};
  event.varint(), event.raw<double>(), event.varint(), event.varint();  // wall_time, step
  EXPECT_EQ(event.varint(), 5u << 3 | 2);                               // summary
  Wire summary{event.take(event.varint())};
  std::map<std::string, Wire> values;
  while (!summary.done()) {
    EXPECT_EQ(summary.varint(), 1u << 3 | 2);
    Wire value{summary.take(summary.varint())};
    EXPECT_EQ(value.varint(), 1u << 3 | 2);
    const std::string tag = value.take(value.varint());
    values.emplace(tag, Wire{value.take(value.bytes.size() - value.at)});
  }
  return values;
}

TEST(TensorBoard, HasEveryDiagnosticOfExpertsByLayer) {
  const auto events = events_of({.step = 7,
                                 .expert_load = {1.25, 2},
                                 .expert_entropy = {2, 1.5},
                                 .router_entropy = {0.5, 0.25},
                                 .router_margin = {0.125, 4},
                                 .dead_experts = {0, 1},
                                 .dropped_by_layer = {3, 4},
                                 .dropped = 7,
                                 .expert_pairs = {{3, 0, 5}, {8, 0, 0}}},
                                "metrics_experts");
  ASSERT_EQ(events.size(), 5u);  // version, session start, scalars, a histogram per layer
  auto scalars = values_of(events[2]);
  const std::vector<std::pair<std::string, float>> wanted = {{"dropped", 7.0f},
                                                             {"expert_load/000", 1.25f},
                                                             {"expert_load/001", 2.0f},
                                                             {"expert_entropy/001", 1.5f},
                                                             {"router_entropy/000", 0.5f},
                                                             {"dead_experts/001", 1.0f},
                                                             {"router_margin/001", 4.0f},
                                                             {"dropped_by_layer/001", 4.0f}};
  for (const auto& [tag, number] : wanted) {
    ASSERT_TRUE(scalars.contains(tag)) << tag;
    EXPECT_EQ(scalars.at(tag).varint(), 2u << 3 | 5) << tag;
    EXPECT_EQ(scalars.at(tag).raw<float>(), number) << tag;
  }

  auto histograms = values_of(events[3]);
  ASSERT_TRUE(histograms.contains("expert_pairs/000"));
  Wire& value = histograms.at("expert_pairs/000");
  EXPECT_EQ(value.varint(), 5u << 3 | 2);  // histo
  Wire histogram{value.take(value.varint())};
  // min, max, number, sum and sum of squares: 3 between 0 and 1, 5 between 2 and 3.
  const double numbers[] = {0, 3, 8, 3 * 0.5 + 5 * 2.5, 3 * 0.25 + 5 * 6.25};
  for (unsigned field = 1; field <= 5; ++field) {
    EXPECT_EQ(histogram.varint(), field << 3 | 1);
    EXPECT_EQ(histogram.raw<double>(), numbers[field - 1]) << field;
  }
  const double lists[2][3] = {{1, 2, 3}, {3, 0, 5}};  // right ends, counts
  for (unsigned field = 6; field <= 7; ++field) {
    EXPECT_EQ(histogram.varint(), field << 3 | 2);
    EXPECT_EQ(histogram.varint(), 24u);
    for (const double number : lists[field - 6]) EXPECT_EQ(histogram.raw<double>(), number);
  }
  EXPECT_TRUE(histogram.done());
}

TEST(TensorBoard, WritesRecordsThatReadBack) {
  const auto events = events_of({.step = 300, .loss = 2.5}, "metrics_events");
  ASSERT_EQ(events.size(), 3u);  // version, session start, one step
  EXPECT_NE(events[0].find("brain.Event:2"), std::string::npos);

  Wire event{events[2]};
  EXPECT_EQ(event.varint(), 1u << 3 | 1);  // wall_time
  EXPECT_GT(event.raw<double>(), 1.6e9);
  EXPECT_EQ(event.varint(), 2u << 3 | 0);  // step
  EXPECT_EQ(event.varint(), 300u);
  EXPECT_EQ(event.varint(), 5u << 3 | 2);  // summary
  Wire summary{event.take(event.varint())};
  EXPECT_TRUE(event.done());
  EXPECT_EQ(summary.varint(), 1u << 3 | 2);  // first value
  Wire value{summary.take(summary.varint())};
  EXPECT_EQ(value.varint(), 1u << 3 | 2);  // tag
  EXPECT_EQ(value.take(value.varint()), "loss");
  EXPECT_EQ(value.varint(), 2u << 3 | 5);  // simple_value
  EXPECT_EQ(value.raw<float>(), 2.5f);
  EXPECT_TRUE(value.done());
}

// Limits the size of this process's files: writes stop in the middle, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uintmax_t bytes) {
    before_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  rlimit old_{};
  void (*before_)(int);
};

TEST(MetricsWriter, LeavesWholeStepsOutWhileNothingCanBeWritten) {
  const Folder folder("weft-full");
  const fs::path file = folder.path / "metrics.jsonl";
  std::vector<std::string> told;
  {
    MetricsWriter writer(folder.path.string(), 1,
                         [&](const std::string& text) { told.push_back(text); });
    StepMetrics m;
    const auto write = [&](int64_t step) {
      m.step = step;
      m.expert_pairs = {{step, 2}};
      writer.write(m);
    };
    write(1);
    EXPECT_TRUE(told.empty());
    {
      const FileSizeLimit in_the_middle_of_a_line(fs::file_size(file) + 20);
      for (int64_t step = 2; step <= 4; ++step) write(step);
      EXPECT_EQ(lines_of(file).size(), 1u);  // readers never see a partial line
    }
    write(5);
    write(6);
  }
  std::vector<int64_t> steps;
  for (const auto& line : lines_of(file)) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 5, 6}));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NE(told[0].find("metrics.jsonl: cannot write: File too large; training goes on"),
            std::string::npos)
      << told[0];
  EXPECT_NE(told[1].find("steps 2 to 4 are missing"), std::string::npos) << told[1];
  EXPECT_GE(events_in(folder.path).size(), 2u + 3 * 2);  // two at the start, two per step
}

TEST(RunRecord, IsJsonWithWhatProducedTheRun) {
  Folder folder("metrics_record");
  RunRecord record{.version = "1",
                   .revision = "abc",
                   .config = "[model]\n",
                   .data = {{"f", "h"}},
                   .machine = this_machine(),
                   .layout = {{"ranks", 1}}};
  write_run_record(folder.path.string(), record);
  const auto json = nlohmann::json::parse(contents(folder.path / "run.json"));
  EXPECT_EQ(json["revision"], "abc");
  EXPECT_EQ(json["config"], "[model]\n");
  EXPECT_EQ(json["data"]["f"], "h");
  EXPECT_EQ(json["layout"]["ranks"], 1);
  EXPECT_GE(json["machine"]["cores"].get<int>(), 1);
  EXPECT_GT(json["machine"]["memory"].get<int64_t>(), 1 << 20);
  EXPECT_FALSE(json["machine"]["instruction_sets"].empty());
}

}  // namespace
}  // namespace weft
