#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The candidate that most resembles `name`, or nothing when none does. Small slips
// (Damerau-Levenshtein distance up to a third of the length), names of other trainers that share
// a word ("hidden_size" for "hidden") and initials ("learning_rate" for "lr") count as
// resembling.
std::optional<std::string> nearest(std::string_view name,
                                   const std::vector<std::string>& candidates);

// "nearest: 'steps'" when something resembles `name`, else "known: a, b, c". Empty without
// candidates.
std::string nearest_or_all(std::string_view name, const std::vector<std::string>& candidates);

// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace weft
