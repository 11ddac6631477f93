#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/indexed_dataset.h"

namespace weft {

// A dataset under construction that survives its builder: tokens and lengths grow in
// PREFIX.building/, and `keep` makes what was added so far, with a note of the caller's, the place
// to go on from. Started again with the same fingerprint (of everything the result depends on), it
// goes on there; with another one it starts over. The finished files are the same bytes either way.
// One builder at a time.
class DatasetBuild {
 public:
  DatasetBuild(std::string prefix, TokenType type, const std::string& fingerprint);
  ~DatasetBuild();
  DatasetBuild(const DatasetBuild&) = delete;
  DatasetBuild& operator=(const DatasetBuild&) = delete;

  const std::string& note() const { return note_; }  // of the last keep; empty: starts from nothing
  bool discarded() const { return discarded_; }      // something with another fingerprint was there
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }

  void add_document(std::span<const int32_t> tokens);
  void keep(const std::string& note);
  void finish();  // PREFIX.bin and PREFIX.idx appear, PREFIX.building/ goes
  void drop();    // removes PREFIX.building/

  // A build of this prefix was stopped while its files were put in place: they may be replaced.
  static bool was_finishing(const std::string& prefix);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  struct State {
    std::string fingerprint, note;
    int64_t tokens = 0, documents = 0;
    bool finishing = false;
  };
  static State read_state(const std::string& folder);
  void write_state(bool finishing);
  bool go_on(const State& state);
  void start_over();
  File open_file(const char* name, const char* mode) const;
  void flush();

  std::string prefix_, folder_, fingerprint_, note_;
  TokenType type_;
  int lock_ = -1;
  bool discarded_ = false, finished_ = false;
  File tokens_file_, lengths_file_;
  std::vector<int32_t> lengths_;
  std::vector<char> encoded_;
  int64_t tokens_ = 0;
};

}  // namespace weft
