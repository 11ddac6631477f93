// Perplexity of a model, over a whole text or by the position in the document.
#include <cmath>

#include "core/base/error.h"
#include "launcher/eval/eval.h"
#include "launcher/plot/plot.h"

namespace weft {
namespace {

using Documents = std::vector<std::vector<int32_t>>;

enum class Windows : uint8_t { kPacked, kSliding };

struct PerplexityOptions {
  EvalOptions eval;
  EvalText text;
  std::string mode = "packed";
  int64_t sequence = 0, stride = 0, max_tokens = 0;
};

// Tokens [begin, end) of a document, of which those from `first` on are scored.
struct Window {
  size_t document;
  int64_t begin, end, first;
};

// As in training: documents are concatenated and cut every `sequence` inputs; no context crosses a
// border of either kind. An item is one row.
std::vector<std::vector<Window>> packed_rows(const Documents& documents, int64_t sequence) {
  std::vector<std::vector<Window>> rows(1);
  int64_t room = sequence;
  for (size_t d = 0; d < documents.size(); ++d) {
    const auto inputs = static_cast<int64_t>(documents[d].size()) - 1;
    for (int64_t begin = 0; begin < inputs;) {
      const int64_t count = std::min(room, inputs - begin);
      rows.back().push_back({d, begin, begin + count + 1, 1});
      begin += count;
      room -= count;
      if (room > 0) continue;
      rows.emplace_back();
      room = sequence;
    }
  }
  if (rows.back().empty()) rows.pop_back();
  return rows;
}

// Windows of `sequence` inputs every `stride` tokens: all but the first tokens of a document are
// predicted from at least sequence - stride tokens before them. An item is one window.
std::vector<std::vector<Window>> sliding_rows(const Documents& documents, int64_t sequence,
                                              int64_t stride) {
  std::vector<std::vector<Window>> rows;
  for (size_t d = 0; d < documents.size(); ++d) {
    const auto size = static_cast<int64_t>(documents[d].size());
    int64_t scored = 1;  // the first token of a document is given
    for (int64_t begin = 0; scored < size; begin += stride) {
      const int64_t end = std::min(size, begin + sequence + 1);
      rows.push_back({{d, begin, end, scored - begin}});
      scored = end;
    }
  }
  return rows;
}

std::vector<ScoredText> texts_of(const Documents& documents, const std::vector<Window>& row) {
  std::vector<ScoredText> texts;
  for (const Window& w : row) {
    const auto& tokens = documents[w.document];
    texts.push_back({{tokens.begin() + w.begin, tokens.begin() + w.end}, w.first});
  }
  return texts;
}

int64_t bytes_of(const Tokenizer& tokenizer, const ScoredText& text) {
  std::string bytes;
  for (size_t i = static_cast<size_t>(text.first); i < text.tokens.size(); ++i) {
    if (text.tokens[i] < tokenizer.vocab()) tokenizer.append_bytes(text.tokens[i], bytes);
  }
  return static_cast<int64_t>(bytes.size());
}

void cut_to(Documents& documents, int64_t tokens) {
  if (tokens <= 0) return;
  size_t kept = 0;
  for (; kept < documents.size() && tokens > 0; ++kept) {
    auto& d = documents[kept];
    if (static_cast<int64_t>(d.size()) > tokens) d.resize(static_cast<size_t>(tokens));
    tokens -= static_cast<int64_t>(d.size());
  }
  documents.resize(kept);
}

void perplexity(const PerplexityOptions& o, EvalSession& session) {
  Documents documents = session.documents(o.text);
  cut_to(documents, o.max_tokens);
  const int64_t sequence = o.sequence > 0 ? o.sequence : session.config().train.sequence;
  const int64_t stride = o.stride > 0 ? o.stride : std::max<int64_t>(1, sequence / 2);
  const bool sliding = o.mode == "sliding";
  if (sliding && stride > sequence) {
    throw ConfigError("--stride {}: windows of --sequence {} would leave tokens out; at most {}",
                      stride, sequence, sequence);
  }
  const auto rows =
      sliding ? sliding_rows(documents, sequence, stride) : packed_rows(documents, sequence);
  const auto make = [&](int64_t i) { return texts_of(documents, rows[static_cast<size_t>(i)]); };
  const auto sums =
      session.map(static_cast<int64_t>(rows.size()), make,
                  [&](int64_t item, const EvalSession::Scores& scores) {
                    std::vector<double> out(4, 0.0);  // loss, tokens, preferred, bytes
                    for (const auto& text : scores) {
                      for (const TokenScore& s : text) {
                        out[0] += s.loss;
                        out[1] += 1;
                        out[2] += s.preferred ? 1 : 0;
                      }
                    }
                    for (const ScoredText& text : make(item)) {
                      out[3] += static_cast<double>(bytes_of(session.tokenizer(), text));
                    }
                    return out;
                  });
  std::vector<double> total(4, 0.0);
  for (const auto& row : sums) {
    for (size_t i = 0; i < total.size(); ++i) total[i] += row[i];
  }
  if (total[1] == 0) throw ConfigError("no document has more than one token: nothing to predict");
  const double loss = total[0] / total[1];
  const double bits = total[3] > 0 ? total[0] / std::log(2.0) / total[3] : 0;
  if (session.speaks()) {
    fmt::print("{:.0f} tokens, {} windows of {}{}\n", total[1], o.mode, sequence,
               sliding ? fmt::format(", {} apart", stride) : "");
    fmt::print(
        "loss {:.6f} nats per token, perplexity {:.4f}, {:.4f} bits per byte, "
        "{:.2f} % of tokens preferred\n",
        loss, std::exp(loss), bits, 100 * total[2] / total[1]);
  }
  session.write({{"eval", "perplexity"},
                 {"mode", o.mode},
                 {"sequence", sequence},
                 {"stride", sliding ? stride : sequence},
                 {"documents", documents.size()},
                 {"tokens", static_cast<int64_t>(total[1])},
                 {"loss", loss},
                 {"perplexity", std::exp(loss)},
                 {"bits_per_byte", bits},
                 {"accuracy", total[2] / total[1]}});
}

struct PerTokenOptions {
  EvalOptions eval;
  EvalText text;
  int64_t length = 0, buckets = 64, max_texts = 0;
  bool join = false;
};

// Texts of length + 1 tokens: the starts of documents that are long enough, or cuts of their
// concatenation.
std::vector<ScoredText> long_texts(const Documents& documents, int64_t length, bool join) {
  std::vector<ScoredText> texts;
  std::vector<int32_t> line;
  for (const auto& d : documents) {
    if (!join) {
      if (static_cast<int64_t>(d.size()) <= length) continue;
      texts.push_back({{d.begin(), d.begin() + length + 1}, 1});
      continue;
    }
    line.insert(line.end(), d.begin(), d.end());
    while (static_cast<int64_t>(line.size()) > length) {
      texts.push_back({{line.begin(), line.begin() + length + 1}, 1});
      line.erase(line.begin(), line.begin() + length + 1);
    }
  }
  return texts;
}

void per_token(const PerTokenOptions& o, EvalSession& session) {
  const int64_t trained = session.config().train.sequence;
  const int64_t length = o.length > 0 ? o.length : 2 * trained;
  const Documents documents = session.documents(o.text);
  std::vector<ScoredText> texts = long_texts(documents, length, o.join);
  if (o.max_texts > 0 && static_cast<int64_t>(texts.size()) > o.max_texts) {
    texts.resize(static_cast<size_t>(o.max_texts));
  }
  if (texts.empty()) {
    size_t longest = 0;
    for (const auto& d : documents) longest = std::max(longest, d.size());
    throw ConfigError(
        "--length {}: the longest document has {} tokens; "
        "give at most {}, or --join to concatenate documents",
        length, longest, longest > 0 ? longest - 1 : 0);
  }
  const int64_t buckets = std::min(o.buckets, length);
  const auto bucket_of = [&](int64_t i) { return static_cast<size_t>(i * buckets / length); };
  const auto sums = session.map(
      static_cast<int64_t>(texts.size()),
      [&](int64_t i) { return std::vector<ScoredText>{texts[static_cast<size_t>(i)]}; },
      [&](int64_t, const EvalSession::Scores& scores) {
        std::vector<double> out(static_cast<size_t>(buckets), 0.0);
        for (int64_t i = 0; i < length; ++i) {
          out[bucket_of(i)] += scores[0][static_cast<size_t>(i)].loss;
        }
        return out;
      });
  Curve curve{.name = "loss"};
  std::vector<double> counts(static_cast<size_t>(buckets), 0.0), first(counts.size(), 0.0);
  for (int64_t i = length - 1; i >= 0; --i) {
    counts[bucket_of(i)] += 1;
    first[bucket_of(i)] = static_cast<double>(i + 1);
  }
  for (size_t b = 0; b < counts.size(); ++b) {
    double sum = 0;
    for (const auto& text : sums) sum += text[b];
    curve.points.push_back({first[b], sum / counts[b] / static_cast<double>(texts.size())});
  }
  if (session.speaks()) {
    fmt::print("{} texts of {} tokens (trained on {})\nfrom position   loss (nats)\n", texts.size(),
               length, trained);
    const size_t step = std::max<size_t>(1, curve.points.size() / 16);
    for (size_t b = 0; b < curve.points.size(); b += step) {
      fmt::print("{:>13.0f}   {:.4f}\n", curve.points[b].x, curve.points[b].y);
    }
  }
  nlohmann::json positions = nlohmann::json::array(), losses = nlohmann::json::array();
  for (const auto& p : curve.points) positions.push_back(p.x), losses.push_back(p.y);
  const Chart chart{.title = "Loss by position in the document",
                    .x = "token position",
                    .y = "loss, nats",
                    .curves = {curve},
                    .mark = static_cast<double>(trained),
                    .mark_name = "training length"};
  session.write({{"eval", "per-token"},
                 {"length", length},
                 {"trained", trained},
                 {"texts", texts.size()},
                 {"positions", positions},
                 {"losses", losses}},
                page(chart.title, {svg(chart)}));
}

}  // namespace

void add_eval_perplexity(CLI::App& eval) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* command = eval.add_subcommand("perplexity", "Loss and perplexity over a text");
  command->footer(
      "Example: weft eval perplexity --checkpoint runs/quickstart "
      "--data corpus --mode sliding --stride 128\n"
      "packed: documents concatenated, cut every --sequence tokens, as in training.\n"
      "sliding: windows of --sequence tokens every --stride; tokens but the "
      "first of a document see at least sequence - stride before them.\n"
      "JSON: mode, sequence, stride, documents, tokens, "
      "loss, perplexity, bits_per_byte, accuracy, checkpoint.");
  add_eval_options(*command, o->eval, Page::kNo);
  add_eval_text(*command, o->text);
  command->add_option("--mode", o->mode, "packed or sliding")
      ->check(CLI::IsMember({"packed", "sliding"}))
      ->capture_default_str();
  command->add_option("--sequence", o->sequence, "Tokens of a window; default: as trained")
      ->check(CLI::PositiveNumber);
  command->add_option("--stride", o->stride, "Tokens between windows; default: half of them")
      ->check(CLI::PositiveNumber);
  command->add_option("--max-tokens", o->max_tokens, "Only the first so many tokens")
      ->check(CLI::PositiveNumber);
  command->callback(
      [o] { evaluate(o->eval, [&](EvalSession& session) { perplexity(*o, session); }); });
}

void add_eval_per_token(CLI::App& eval) {
  auto o = std::make_shared<PerTokenOptions>();
  CLI::App* command =
      eval.add_subcommand("per-token", "Loss by the position of a token in its document");
  command->footer(
      "Example: weft eval per-token --checkpoint runs/quickstart "
      "--data corpus --length 2048 --html curve.html\n"
      "JSON: length, trained, texts, positions (first of each bucket), losses, checkpoint.");
  add_eval_options(*command, o->eval, Page::kYes);
  add_eval_text(*command, o->text);
  command->add_option("--length", o->length, "Positions; default: twice the training length")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--buckets", o->buckets, "Number of buckets into which positions are averaged")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--max-texts", o->max_texts, "Only so many texts")
      ->check(CLI::PositiveNumber);
  command->add_flag("--join", o->join, "Concatenate documents that are too short");
  command->callback(
      [o] { evaluate(o->eval, [&](EvalSession& session) { per_token(*o, session); }); });
}

}  // namespace weft
