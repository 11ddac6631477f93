#include "core/data/parquet_reader.h"

#include "core/base/error.h"

namespace weft {
namespace {

int64_t bytes_of(const ParquetPage& page) {
  return page.unpacked + page.values * static_cast<int64_t>(sizeof(std::string_view));
}

}  // namespace

ParquetReader::ParquetReader(const std::string& path, const std::string& column, int threads)
    : file_(path),
      column_(parquet_column(file_, column)),
      pages_(file_, column_),
      threads_(static_cast<size_t>(threads)) {}

// What is damaged is an error when its turn comes, not when it is read ahead, so that it does not
// depend on the threads whether it is met.
void ParquetReader::read_ahead() {
  if (broken_) return;
  try {
    start_pages();
  } catch (const Error&) {
    broken_ = true;
    std::promise<ParquetTexts> failed;
    failed.set_exception(std::current_exception());
    ahead_.push_back({failed.get_future(), 0});
  }
}

// Starts unpacking pages until there are enough of them or of their bytes.
void ParquetReader::start_pages() {
  while (ahead_.size() < 2 * threads_) {
    if (!waiting_) waiting_ = pages_.next();
    if (!waiting_) return;
    const ParquetPage page = *waiting_;
    if (page.kind == ParquetPage::Kind::kDictionary) {
      dictionary_ = std::make_shared<ParquetTexts>(read_texts(file_, column_, page, nullptr));
    } else {
      if (!ahead_.empty() && bytes_ahead_ + bytes_of(page) > kAhead) return;
      const auto mode = threads_ > 1 ? std::launch::async : std::launch::deferred;
      ahead_.push_back({std::async(mode,
                                   [this, page, dictionary = dictionary_] {
                                     return read_texts(file_, column_, page, dictionary);
                                   }),
                        bytes_of(page)});
      bytes_ahead_ += bytes_of(page);
    }
    waiting_.reset();
  }
}

bool ParquetReader::next_page() {
  now_ = {};
  at_ = 0;
  read_ahead();
  if (ahead_.empty()) return false;
  Ahead first = std::move(ahead_.front());
  ahead_.pop_front();
  bytes_ahead_ -= first.bytes;
  now_ = first.texts.get();
  read_ahead();
  return true;
}

std::optional<std::string_view> ParquetReader::next() {
  while (at_ == now_.texts.size()) {
    if (!next_page()) return std::nullopt;
  }
  return now_.texts[at_++];
}

void ParquetReader::skip(int64_t texts) {
  WEFT_CHECK(ahead_.empty() && now_.texts.empty(), "skips only from the start");
  for (;;) {
    waiting_ = pages_.next();
    if (!waiting_) return;
    if (waiting_->kind == ParquetPage::Kind::kDictionary) {
      dictionary_ = std::make_shared<ParquetTexts>(read_texts(file_, column_, *waiting_, nullptr));
    } else if (waiting_->values > texts) {
      break;
    } else {
      texts -= waiting_->values;
    }
  }
  for (; texts > 0; --texts) next();
}

}  // namespace weft
