#include "core/data/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/unicode.h"

namespace weft {
namespace {

bool word_ends(std::string_view text) {
  if (text.empty()) return false;
  size_t at = last_character(text);
  return is_word_character(next_code_point(text, at));
}

bool word_begins(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word_character(next_code_point(text, at));
}

}  // namespace

void StringSet::add(std::string_view text, int32_t value) {
  if (text.empty()) return;
  begins_[static_cast<unsigned char>(text[0])] = true;
  size_t node = 0;
  for (const char c : text) {
    const auto made =
        nodes_[node].next.try_emplace(static_cast<unsigned char>(c), std::ssize(nodes_));
    node = static_cast<size_t>(made.first->second);
    if (made.second) nodes_.emplace_back();
  }
  // Two strings that become one by normalization: the first wins, as in the search for patterns.
  if (nodes_[node].value < 0) nodes_[node].value = value;
}

void StringSet::find_all(std::string_view text, std::vector<Found>& out) const {
  for (size_t begin = 0; begin < text.size();) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) {
      ++begin;
      continue;
    }
    Found longest{begin, begin, -1};
    const Node* node = nodes_.data();
    for (size_t at = begin; at < text.size(); ++at) {
      const auto next = node->next.find(static_cast<unsigned char>(text[at]));
      if (next == node->next.end()) break;
      node = &nodes_[static_cast<size_t>(next->second)];
      if (node->value >= 0) longest = {begin, at + 1, node->value};
    }
    if (longest.value >= 0) out.push_back(longest);
    begin = std::max(begin + 1, longest.end);
  }
}

void AddedTokens::read(const JsonPart& part, int64_t model_size, int32_t id_in_model) {
  AddedToken token{.content = part["content"].text(),
                   .special = part["special"].flag(false),
                   .single_word = part["single_word"].flag(false),
                   .lstrip = part["lstrip"].flag(false),
                   .rstrip = part["rstrip"].flag(false),
                   .normalized = part["normalized"].flag(true)};
  if (token.content.empty()) return;
  if (token.content.size() > 4096) part["content"].refuse("longer than 4096 bytes");
  const AddedToken* before = find(token.content);
  int64_t id = id_in_model;
  if (before != nullptr)
    id = before->id;
  else if (id < 0)
    id = by_id_.empty() ? model_size : std::max<int64_t>(model_size, by_id_.rbegin()->first + 1);
  // Where the file disagrees, programs would give different ids to the same text.
  if (part["id"].whole(0, INT32_MAX) != id) {
    part["id"].refuse(fmt::format("\"{}\" has id {} here, but by its place in the vocabulary {}",
                                  token.content, part["id"].whole(0, INT32_MAX), id));
  }
  token.id = static_cast<int32_t>(id);
  by_content_[token.content] = token.id;
  by_id_[token.id] = std::move(token);
}

void AddedTokens::index(const TextNormalizer& normalizer) {
  for (const auto& [id, token] : by_id_) {
    if (token.normalized)
      normalized_.add(normalizer.apply(token.content), id);
    else
      given_.add(token.content, id);
  }
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &by_id_.at(found->second);
}

void AddedTokens::cut(Stage stage, std::string_view text, std::vector<Part>& out) const {
  std::vector<StringSet::Found> all;
  set(stage).find_all(text, all);
  size_t done = 0;
  for (const StringSet::Found& found : all) {
    const AddedToken& token = by_id_.at(found.value);
    size_t begin = found.begin, end = found.end;
    if (token.single_word && (word_ends(text.substr(0, begin)) || word_begins(text.substr(end))))
      continue;
    if (token.lstrip) begin = std::max(white_space_begin(text.substr(0, begin)), done);
    if (token.rstrip) end += white_space_end(text.substr(end));
    if (done < begin) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

}  // namespace weft
