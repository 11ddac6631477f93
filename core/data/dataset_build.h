#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/data/indexed_dataset.h"

namespace weft {

// A dataset under construction that survives its builder: tokens and lengths grow in
// PREFIX.building/, and `keep` makes what was added so far, with a note of the caller's, the place
// to go on from. Started again with the same fingerprint (of everything the result depends on), it
// goes on there; with another one it starts over. The finished files are the same bytes either way.
// One builder at a time.
//
// At the end all files lie complete and synced in the folder, the state says so, and only then they
// move to their places, the .idx last: where it is, everything is. Who was stopped meanwhile lets
// them move at the next start.
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

  bool done() const { return done_; }  // an earlier start had only to move its files

  void add_document(std::span<const int32_t> tokens);
  void keep(const std::string& note);
  // PREFIX.bin, PREFIX.idx and PREFIX.tokenizer.json appear, PREFIX.building/ goes. `moment` is
  // called between any two changes of files, for tests.
  void finish(const std::string& note, const std::string& tokenizer_json,
              const std::function<void()>& moment = {});
  void drop();  // removes PREFIX.building/

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
  enum class Finishing { kNo, kYes };
  void write_state(const std::string& note, Finishing finishing);
  [[noreturn]] void refuse_to_write() const;
  bool go_on(const State& state);
  bool all_written() const;
  void put_in_place(const std::function<void()>& moment);
  void start_over();
  File open_file(const char* name, const char* mode) const;
  void flush();

  std::string prefix_, folder_, fingerprint_, note_;
  TokenType type_;
  int lock_ = -1;
  bool discarded_ = false, dropped_ = false, done_ = false;
  File tokens_file_, lengths_file_;
  std::vector<int32_t> lengths_;
  std::vector<char> encoded_;
  int64_t tokens_ = 0;
};

}  // namespace weft
