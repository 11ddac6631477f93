#include "core/base/nearest.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == '_' || c == '.')
      out.emplace_back();
    else
      out.back() += c;
  }
  std::erase(out, "");
  return out;
}

std::string initials(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += w[0];
  return out;
}

// Smaller is closer; above 1 means no resemblance.
double remoteness(const std::string& name, const std::string& candidate) {
  if (name == candidate) return 0.0;
  const size_t longer = std::max(name.size(), candidate.size());
  const int edits = edit_distance(name, candidate);
  const int allowed = std::max<int>(1, static_cast<int>(longer) / 3);
  if (edits <= allowed && edits < static_cast<int>(longer)) {
    return 0.5 * edits / static_cast<double>(allowed);
  }
  const auto name_words = words(name), candidate_words = words(candidate);
  if (name_words.size() > 1 && initials(name_words) == candidate) return 0.6;
  if (candidate_words.size() > 1 && initials(candidate_words) == name) return 0.6;
  size_t shared = 0;
  for (const std::string& w : name_words) {
    shared += std::count(candidate_words.begin(), candidate_words.end(), w);
  }
  if (shared == 0) return 2.0;
  return 1.0 - 0.3 * static_cast<double>(shared) /
                   static_cast<double>(std::max(name_words.size(), candidate_words.size()));
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest(std::string_view name,
                                   const std::vector<std::string>& candidates) {
  // Typed keys are short; a hostile key of a megabyte must not cost a quadratic table.
  if (name.empty() || name.size() > 200) return std::nullopt;
  const std::string asked = lower(name);
  std::optional<std::string> best;
  double best_remoteness = 1.0;
  for (const std::string& candidate : candidates) {
    const double r = remoteness(asked, lower(candidate));
    if (r < best_remoteness) {
      best_remoteness = r;
      best = candidate;
    }
  }
  return best;
}

std::string nearest_or_all(std::string_view name, const std::vector<std::string>& candidates) {
  if (candidates.empty()) return "";
  if (const auto found = nearest(name, candidates)) return fmt::format("nearest: '{}'", *found);
  return fmt::format("known: {}", fmt::join(candidates, ", "));
}

}  // namespace weft
