#include "core/report/trace.h"

#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/files/new_file.h"

namespace weft {
namespace {

// The number, or -1 if the text is anything but digits.
int64_t whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc{} && end == text.data() + text.size() ? value : -1;
}

const char* category(Trace::Kind kind) {
  constexpr const char* kNames[] = {"work", "call", "wait", "flight"};
  return kNames[static_cast<size_t>(kind)];
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string arguments(const Trace::Span& span) {
  std::string out;
  const auto number = [&](const char* name, int64_t value) {
    if (value >= 0) out += fmt::format("{}\"{}\":{}", out.empty() ? "" : ",", name, value);
  };
  if (span.axis != nullptr) out += fmt::format("\"axis\":{}", quoted(span.axis));
  number("step", span.step);
  number("layer", span.layer);
  number("micro_batch", span.micro_batch);
  number("bytes", span.bytes);
  return out;
}

}  // namespace

std::optional<StepRange> parse_steps(const std::string& text) {
  if (text.empty()) return StepRange{};
  const std::string_view view = text;
  const size_t dash = view.find('-');
  const int64_t first = whole_number(view.substr(0, dash)),
                last = dash == view.npos ? first : whole_number(view.substr(dash + 1));
  if (first < 1 || last < first) return std::nullopt;
  return StepRange{first, last};
}

std::string trace_events(const Trace& trace, int rank, const std::string& title) {
  std::string out = fmt::format(
      "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{0},\"tid\":0,"
      "\"args\":{{\"name\":{1}}}}},\n"
      "{{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":{0},\"tid\":0,"
      "\"args\":{{\"sort_index\":{0}}}}}",
      rank, quoted(title));
  const auto microseconds = [&](Trace::Time t) {
    return std::chrono::duration<double, std::micro>(t - trace.origin()).count();
  };
  int64_t flights = 0;
  for (const Trace::Span& span : trace.spans()) {
    const std::string name =
        quoted(span.kind == Trace::Kind::kWait ? fmt::format("wait for {}", span.name) : span.name);
    const double begin = microseconds(span.begin), end = microseconds(span.end);
    const std::string common = fmt::format("\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":0", name,
                                           category(span.kind), rank);
    if (span.kind != Trace::Kind::kFlight) {
      out += fmt::format(",\n{{{},\"ph\":\"X\",\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{{}}}}}",
                         common, begin, end - begin, arguments(span));
      continue;
    }
    // Flights overlap each other and computation, so they get their own lines.
    const std::string id = fmt::format("{},\"id\":\"{}.{}\"", common, rank, flights++);
    out += fmt::format(",\n{{{},\"ph\":\"b\",\"ts\":{:.3f},\"args\":{{{}}}}}", id, begin,
                       arguments(span));
    out += fmt::format(",\n{{{},\"ph\":\"e\",\"ts\":{:.3f}}}", id, end);
  }
  return out;
}

void write_trace(const std::string& path, const std::vector<std::string>& ranks) {
  NewFile file(path);
  const auto write = [&](const std::string& text) {
    file.write(text.data(), static_cast<int64_t>(text.size()));
  };
  write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  for (size_t r = 0; r < ranks.size(); ++r) write((r == 0 ? "" : ",\n") + ranks[r]);
  write("\n]}\n");
  file.finish();
}

}  // namespace weft
