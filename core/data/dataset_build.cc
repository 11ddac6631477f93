#include "core/data/dataset_build.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokens = "tokens";
constexpr const char* kLengths = "lengths";
constexpr const char* kIndex = "index";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kState = "state.json";

// What becomes of the files, in the order in which they move.
struct Move {
  const char *from, *ending;
};
constexpr Move kMoves[] = {{kTokens, ".bin"}, {kTokenizer, ".tokenizer.json"}, {kIndex, ".idx"}};

int64_t size_or_none(const std::string& path) {
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  return failed ? -1 : static_cast<int64_t>(size);
}

}  // namespace

DatasetBuild::State DatasetBuild::read_state(const std::string& folder) {
  State state;
  std::ifstream in(folder + "/" + kState, std::ios::binary);
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return state;
  try {
    state = {.fingerprint = json.at("fingerprint"),
             .note = json.at("note"),
             .tokens = json.at("tokens"),
             .documents = json.at("documents"),
             .finishing = json.at("finishing")};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return state;
}

bool DatasetBuild::was_finishing(const std::string& prefix) {
  return read_state(prefix + ".building").finishing;
}

DatasetBuild::DatasetBuild(std::string prefix, TokenType type, const std::string& fingerprint)
    : prefix_(std::move(prefix)),
      folder_(prefix_ + ".building"),
      fingerprint_(fingerprint),
      type_(type) {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) throw ConfigError("cannot make {}: {}", folder_, failed.message());
  lock_ = open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw ConfigError("cannot write into {}: {}", folder_, std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    throw ConfigError(
        "{}: another `weft data build` is making this dataset; wait for it or choose another --out",
        folder_);
  }
  const State state = read_state(folder_);
  if (state.finishing && state.fingerprint == fingerprint_ && all_written()) {
    note_ = state.note;
    tokens_ = state.tokens;
    put_in_place({});
    done_ = true;
    return;
  }
  if (!go_on(state)) {
    discarded_ = !state.fingerprint.empty() && state.fingerprint != fingerprint_;
    start_over();
  }
}

DatasetBuild::~DatasetBuild() {
  if (!dropped_ && note_.empty()) drop();  // nothing to go on from
  if (lock_ >= 0) close(lock_);
}

DatasetBuild::File DatasetBuild::open_file(const char* name, const char* mode) const {
  File file(std::fopen((folder_ + "/" + name).c_str(), mode));
  if (file == nullptr)
    throw ConfigError("cannot write {}/{}: {}", folder_, name, std::strerror(errno));
  return file;
}

// What lies behind the last keep is cut off.
bool DatasetBuild::go_on(const State& state) {
  if (state.fingerprint != fingerprint_ || state.finishing || state.documents < 0 ||
      state.tokens < 0)
    return false;
  const std::string tokens = folder_ + "/" + kTokens, lengths = folder_ + "/" + kLengths;
  const int64_t bytes = state.tokens * size_of(type_);
  if (size_or_none(tokens) < bytes || size_or_none(lengths) < 4 * state.documents) return false;
  fs::resize_file(tokens, static_cast<uintmax_t>(bytes));
  fs::resize_file(lengths, static_cast<uintmax_t>(4 * state.documents));
  lengths_.resize(static_cast<size_t>(state.documents));
  lengths_file_ = open_file(kLengths, "r+b");
  if (std::fread(lengths_.data(), 4, lengths_.size(), lengths_file_.get()) != lengths_.size())
    return false;
  if (std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0}) != state.tokens) {
    lengths_.clear();
    return false;
  }
  std::fseek(lengths_file_.get(), 0, SEEK_END);
  tokens_file_ = open_file(kTokens, "ab");
  tokens_ = state.tokens;
  note_ = state.note;
  return true;
}

void DatasetBuild::start_over() {
  std::error_code ignored;
  fs::remove(folder_ + "/" + kState, ignored);
  lengths_.clear();
  tokens_file_ = open_file(kTokens, "wb");
  lengths_file_ = open_file(kLengths, "wb");
}

void DatasetBuild::add_document(std::span<const int32_t> tokens) {
  encoded_.clear();
  append_tokens(type_, tokens, encoded_);
  const auto length = static_cast<int32_t>(tokens.size());
  if (std::fwrite(encoded_.data(), 1, encoded_.size(), tokens_file_.get()) != encoded_.size() ||
      std::fwrite(&length, sizeof length, 1, lengths_file_.get()) != 1) {
    refuse_to_write();
  }
  lengths_.push_back(length);
  tokens_ += length;
}

void DatasetBuild::refuse_to_write() const {
  const int why = errno;
  throw Error("cannot write {}: {}; {}", folder_, std::strerror(why),
              note_.empty() ? "nothing is left of it" : "started again, it goes on from there");
}

void DatasetBuild::flush() {
  for (const File* file : {&tokens_file_, &lengths_file_}) {
    if (std::fflush(file->get()) != 0 || fsync(fileno(file->get())) != 0) {
      refuse_to_write();
    }
  }
}

void DatasetBuild::write_state(const std::string& note, Finishing finishing) {
  const std::string text = nlohmann::json{{"fingerprint", fingerprint_},
                                          {"note", note},
                                          {"tokens", tokens_},
                                          {"documents", documents()},
                                          {"finishing", finishing == Finishing::kYes}}
                               .dump();
  NewFile state(folder_ + "/" + kState);
  state.write(text.data(), static_cast<int64_t>(text.size()));
  state.finish();
  note_ = note;  // from here on there is something to go on from
}

void DatasetBuild::keep(const std::string& note) {
  flush();
  write_state(note, Finishing::kNo);
}

void DatasetBuild::finish(const std::string& note, const std::string& tokenizer_json,
                          const std::function<void()>& moment) {
  const auto pass = [&] {
    if (moment) moment();
  };
  flush();
  std::vector<int64_t> first_sequence(lengths_.size() + 1);
  std::iota(first_sequence.begin(), first_sequence.end(), 0);
  NewFile idx(folder_ + "/" + kIndex);
  write_index(idx, type_, lengths_, first_sequence);
  idx.finish();
  pass();
  NewFile tokenizer(folder_ + "/" + kTokenizer);
  tokenizer.write(tokenizer_json.data(), std::ssize(tokenizer_json));
  tokenizer.finish();
  pass();
  write_state(note, Finishing::kYes);
  pass();
  put_in_place(moment);
}

// Every file is in the folder, or has moved.
bool DatasetBuild::all_written() const {
  return std::all_of(std::begin(kMoves), std::end(kMoves), [&](const Move& m) {
    return fs::exists(folder_ + "/" + m.from) || fs::exists(prefix_ + m.ending);
  });
}

void DatasetBuild::put_in_place(const std::function<void()>& moment) {
  // An index of older data must not meet the new .bin, whenever the machine stops.
  if (fs::exists(folder_ + "/" + kIndex)) fs::remove(prefix_ + ".idx");
  sync_folder_of(prefix_);
  for (const Move& m : kMoves) {
    if (moment) moment();
    const std::string from = folder_ + "/" + m.from;
    if (fs::exists(from)) fs::rename(from, prefix_ + m.ending);
  }
  sync_folder_of(prefix_);
  if (moment) moment();
  drop();
}

void DatasetBuild::drop() {
  dropped_ = true;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace weft
